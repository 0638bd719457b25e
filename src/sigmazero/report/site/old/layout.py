"""The paper's two tables from the cells of a store: which figures, in which order, and which are best.

A layout holds numbers; `render` and `latex` make texts of them. Success rates are shares of all samples, as in
`measure`, and infinity stands for what was not found.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sigmazero.core import metrics
from sigmazero.core.metrics import FigureKind
from sigmazero.report.site.old import measure
from sigmazero.report.site.old.measure import Figures, Measured
from sigmazero.report.site.old.proved import proved_ks
from sigmazero.store.facts import CellInfo

GB = 2**30
LEVEL, ENDS = 0.95, ("_low", "_high")
MEMORY = "memory_gb"
# What tells lines apart besides model and attack; where it is the same in all of them, the caption says it.
SETTINGS = ("data", "steps", "goal", "unit", "seed", "precision", "version", "weights", "rows", "space", "samples")
# These are shown only where they differ among the lines of one attack, model or data set: in mixed tables.
WITHIN = {"version": "attack", "weights": "model", "rows": "data", "space": "data"}
TABLES = ("minimum-norm", "fixed-budget")


@dataclass(frozen=True)
class Column:
    """A figure: its name in a CSV file, its heading, and the other fields of `core.metrics.Metric`.

    Of what an attack costs (`better` = 0) none is called best, as in the paper: one that gives up at once is cheap.
    A column that is `seldom` known is left out where no line has it.
    """

    name: str
    heading: str
    kind: FigureKind
    better: int = 0
    title: str = ""
    k: float | None = None
    seldom: bool = False


@dataclass(frozen=True)
class Line:
    """One line: the cell it is about (that of the smallest budget), its settings as words, and its figures."""

    info: CellInfo
    words: dict[str, str]
    figures: dict[str, float | None]
    paper: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """A table: one block of lines per model; `words` are the columns in front of the figures.

    `across` says how many blocks stand beside each other; with 1 they stand below each other. With `intervals` figures
    are shown with the ends of their 95 % intervals, which are in the figures as NAME_low and NAME_high.
    """

    title: str
    columns: tuple[Column, ...]
    words: tuple[str, ...]
    blocks: tuple[tuple[Line, ...], ...]
    compared: bool = False
    across: int = 1
    intervals: bool = False

    @property
    def caption(self) -> str:
        """The title, and the settings that all lines share."""
        lines = [line for block in self.blocks for line in block]
        common = [name for name in SETTINGS if name not in self.words and name not in WITHIN]
        shared = [f"{name} {lines[0].words[name]}" for name in common]
        return ", ".join([self.title, *shared])


def lay_out(title: str, columns: Sequence[Column], words: Sequence[str], blocks: Iterable[Sequence[Line]]) -> Layout:
    """A layout with columns for the settings that differ, and without what is seldom known where no line tells it."""
    kept = tuple(tuple(block) for block in blocks)
    lines = [line for block in kept for line in block]
    shown = tuple(c for c in columns if not c.seldom or any(x.figures.get(c.name) is not None for x in lines))
    differ = [name for name in SETTINGS if _differs(lines, name)]
    return Layout(title, shown, (*words, *differ), kept)


def _differs(lines: Sequence[Line], name: str) -> bool:
    among = WITHIN.get(name)
    pairs = {(line.words[among] if among else "", line.words[name]) for line in lines}
    return len(pairs) > len({group for group, _ in pairs})


def ends(line: Line, column: Column) -> tuple[float, float] | None:
    """The ends of the 95 % interval of a figure; None where it has none."""
    low, high = (line.figures.get(f"{column.name}{end}") for end in ENDS)
    return None if low is None or high is None else (low, high)


def best(block: Sequence[Line], column: Column) -> float | None:
    """The best figure of a block in a column; None where nothing competes, or more than half of the lines have it."""
    found = [value for line in block if (value := line.figures[column.name]) is not None]
    if not column.better or len(found) < 2:
        return None
    first = max(found) if column.better > 0 else min(found)
    return first if 2 * found.count(first) <= len(found) else None


def build(name: str, cells: Sequence[Measured], ks: Sequence[float] | None = None, mix: bool = False) -> Layout:
    """The table of that name, of the cells that belong in it."""
    if name not in TABLES:
        raise ValueError(f"there is no table {name!r}; choose one of {', '.join(TABLES)}")
    fixed = name == "fixed-budget"
    chosen = [(info, facts) for info, facts in cells if (info.budget is not None) == fixed]
    if not cells:
        raise ValueError("the store has no samples yet; run a plan into it first")
    if not chosen:
        other = next(table for table in TABLES if table != name)
        lack = f"runs {'with' if fixed else 'without'} a budget"
        raise ValueError(f"the store has no {lack}, which the table {name} is made of; ask for {other}")
    return fixed_budget(chosen, mix) if fixed else minimum_norm(chosen, ks, mix)


def minimum_norm(cells: Sequence[Measured], ks: Sequence[float] | None = None, mix: bool = False) -> Layout:
    """Per model and attack: success rates at ks and ∞, the median, and the cost."""
    asked = sorted({float(k) for k in (measure.fitting(cells) if ks is None else ks)})
    figures = rated(cells, asked, mix)
    # The ends of what is proved are enough, where nobody asked for others: there is little room.
    told = [k for k in proved_ks(cells) if k in asked] or asked
    columns = [*comparable([*asked, math.inf]), *bounds(told), *costs()]
    lines = [Line(info, words(info, len(facts)), figures[info.key]) for info, facts in cells]
    blocks = [sorted(block, key=lambda line: _weakness(line, columns)) for block in in_blocks(lines)]
    by_cost = all(info.unit == measure.COST for info, _ in cells)
    title = "Minimum-cost attacks" if by_cost else "Minimum-norm attacks"
    return lay_out(title, columns, ("model", "attack"), blocks)


def fixed_budget(cells: Sequence[Measured], mix: bool = False) -> Layout:
    """Per model and attack: the success rate of the run at each budget; the cost is that of the smallest."""
    figures = rated(cells, (), mix)
    rows: dict[str, list[Measured]] = {}
    for info, facts in cells:
        # The parameters too: two settings of an attack may bear one name.
        same = [info.attack, identity(info), sorted(words(info, 0).items()), info.parameters]
        rows.setdefault(json.dumps(same, sort_keys=True), []).append((info, facts))
    budgets = sorted({float(info.budget) for info, _ in cells if info.budget is not None})
    columns = [*comparable(budgets, budgeted=True), *bounds(budgets), *costs()]
    lines = [_budget_line(row, columns, figures) for row in rows.values()]
    blocks = []
    for block in in_blocks(lines):
        smallest = min(line.info.budget or 0 for line in block)
        fair = [line if line.info.budget == smallest else _without_cost(line, columns) for line in block]
        blocks.append(sorted(fair, key=lambda line: _weakness(line, columns)))
    return lay_out("Fixed-budget attacks", columns, ("model", "attack"), blocks)


def comparable(ks: Sequence[float], budgeted: bool = False) -> list[Column]:
    """Columns of the figures by which attacks are compared; with `budgeted`, of those that runs with a budget tell."""
    found = [each for each in metrics.asked("store", ks) if each.better and not each.hidden]
    return [
        Column(each.name, each.heading, each.kind, each.better, each.title, each.k)
        for each in found
        if not (budgeted and each.free) or each.k is not None
    ]


def bounds(ks: Sequence[float]) -> list[Column]:
    """Columns of what is proved, whatever the attack, where something is."""
    found = [each for name in ("median_least", "proved") for each in metrics.asked("store", ks) if _is(each, name)]
    return [Column(each.name, each.heading, each.kind, 0, each.title, each.k, seldom=True) for each in found]


def _is(metric: metrics.Metric, name: str) -> bool:
    return metric.name == name or (metric.k is not None and metric.name.startswith(f"{name}_"))


def costs() -> list[Column]:
    """Columns of what it took, per sample; memory is that of the device, known for CUDA alone."""
    return [
        Column("seconds", "s", "number"),
        Column("kqueries", "kqueries", "number"),
        Column(MEMORY, "memory GB", "number", seldom=True),
    ]


def rated(cells: Sequence[Measured], ks: Sequence[float], mix: bool = False) -> dict[str, Figures]:
    """The numbers of `measure.table` and the memory, by cell key."""
    found: dict[str, Figures] = {}
    for (info, _), row in zip(cells, measure.table(cells, ks, mix, LEVEL), strict=True):
        numbers = {name: value for name, value in row.items() if not isinstance(value, str)}
        peak = info.provenance.get("peak_memory_device")
        found[info.key] = {**numbers, MEMORY: None if peak is None else peak / GB}
    return found


def identity(info: CellInfo) -> list[str]:
    """What cells must have in common to compete."""
    aim = str(info.origin.get("target"))
    return [info.model, info.dataset, info.goal, aim, info.unit, info.model_sha256, info.data_hash, info.space]


def in_blocks(lines: Iterable[Line]) -> list[list[Line]]:
    """Lines that compete with each other together, in the order of first appearance."""
    blocks: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        blocks.setdefault(tuple(identity(line.info)), []).append(line)
    return list(blocks.values())


def words(info: CellInfo, done: int) -> dict[str, str]:
    """The settings of a cell in words; the samples too if it is not complete."""
    return {
        "model": info.model,
        "attack": info.attack,
        "data": info.dataset,
        "steps": str(info.steps),
        "goal": info.goal,
        "unit": info.unit,
        "seed": str(info.seed),
        "precision": info.precision,
        "version": str(info.version),
        "weights": info.model_sha256[:8],
        "rows": info.data_hash[:8],
        "space": info.space,
        "samples": f"{done}" if done in (0, info.rows) else f"{done} of {info.rows}",
    }


def _budget_line(row: Sequence[Measured], columns: Sequence[Column], figures: dict[str, Figures]) -> Line:
    """A figure at k is of the run with that budget, memory the most of all runs, the rest of the smallest budget."""
    ordered = sorted(row, key=lambda cell: cell[0].budget or 0)
    info, found = ordered[0][0], {each.budget: figures[each.key] for each, _ in ordered}
    smallest = found[info.budget]
    of = {c.name: smallest if c.k is None else found.get(int(c.k), {}) for c in columns}
    values = {f"{name}{end}": held.get(f"{name}{end}") for name, held in of.items() for end in ("", *ENDS)}
    peaks = [peak for each in found.values() if (peak := each[MEMORY]) is not None]
    done = {words(each, len(facts))["samples"]: None for each, facts in ordered}
    return Line(info, words(info, 0) | {"samples": ", ".join(done)}, values | {MEMORY: max(peaks, default=None)})


def _without_cost(line: Line, columns: Sequence[Column]) -> Line:
    """A line that lacks the model's smallest budget: what it took at another one does not compare."""
    other: Figures = {column.name: None for column in columns if column.k is None and column.name != MEMORY}
    return replace(line, figures=line.figures | other)


def _weakness(line: Line, columns: Sequence[Column]) -> tuple[float, ...]:
    """Sorts from the least to the most effective: by the median if there is one, then by the success rates."""
    median = line.figures.get("median_l0")
    shares = [line.figures[column.name] for column in columns if column.k is not None and column.better]
    return (-math.inf if median is None else -median, *(-1.0 if share is None else share for share in shares))
