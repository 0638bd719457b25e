"""Lay out the paper's two tables: which runs, which figures, in which order, and which are best.

A `Table` holds numbers; `formats` and the page make texts of them. Success rates are shares of all samples, and
infinity stands for what was not found.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sigmazero.core import metrics
from sigmazero.core.metrics import METRICS, Metric
from sigmazero.report.intervals import LEVEL
from sigmazero.report.runs import COST, Group, Run, groups, proved_ks, summary, table_ks

GB = 2**30
ENDS = ("_low", "_high")
MEMORY = "memory_gb"
# Settings that are shown only where they differ among the lines of one attack, model or data set.
WITHIN = {"version": "attack", "weights": "model", "code": "model", "rows": "data", "space": "data"}
TABLES = ("minimum-norm", "fixed-budget")
CLEAN = METRICS["clean_accuracy"]
# What a run took per sample; memory is that of the device, known for CUDA alone.
COSTS = (METRICS["kqueries"], METRICS["seconds"], Metric(MEMORY, lambda _: None, "memory GB", "memory GB"))
HELP = {
    "clean_accuracy": "Share classified correctly without any change, in %.",
    "median_l0": "Median number of changes; a sample that was not fooled counts as ∞.",
    "median_least": "Median of the changes proved to be needed; the truth lies between it and the median found.",
    "asr_inf": "Share of all samples fooled by any number of changes, in %.",
    "kqueries": "Thousands of forward and backward passes per sample, the clean check and the verification included.",
    "seconds": "Seconds per sample: the time of a batch divided by its samples, on the device named under Provenance.",
    MEMORY: "Peak memory on the device.",
}


@dataclass(frozen=True)
class Line:
    """One line: its run (that of the smallest budget), its settings as words, and its figures."""

    run: Run
    words: dict[str, str]
    figures: dict[str, float | None]
    paper: dict[str, float] = field(default_factory=dict)

    def ends(self, column: Metric) -> tuple[float, float] | None:
        """Return the ends of the 95 % interval of a figure; None where it has none."""
        low, high = (self.figures.get(f"{column.name}{end}") for end in ENDS)
        return None if low is None or high is None else (low, high)


@dataclass(frozen=True)
class Table:
    """A table with one block of lines per group, the strongest first; `words` are the columns before the figures.

    columns    figures; where `better` is 0 no line is marked as best: an attack that gives up at once is cheap
    constant   figures that all lines share: the caption has them
    compared   whether the lines also have the paper's figures
    intervals  show the ends of the 95 % intervals, which are in the figures as NAME_low and NAME_high
    """

    title: str
    columns: tuple[Metric, ...]
    words: tuple[str, ...]
    blocks: tuple[tuple[Line, ...], ...]
    constant: tuple[Metric, ...] = ()
    compared: bool = False
    intervals: bool = False

    @property
    def lines(self) -> list[Line]:
        """Return all lines."""
        return [line for block in self.blocks for line in block]

    @property
    def caption(self) -> str:
        """Return the title, and what all lines share."""
        first = self.lines[0]
        common = [name for name in first.words if name not in ("attack", *self.words, *WITHIN)]
        shared = [f"{name} {first.words[name]}" for name in common]
        shared += [f"clean accuracy {100 * (first.figures[column.name] or 0):.1f} %" for column in self.constant]
        return ", ".join([self.title, *shared])


def build(name: str, runs: Sequence[Run], ks: Sequence[float] | None = None, mix: bool = False) -> Table:
    """Return the table of that name, of the runs that belong in it.

    name  "minimum-norm" for runs without a budget, "fixed-budget" for the others
    ks    numbers of changes to give success rates at; by default the quartiles of the strongest attack
    """
    if name not in TABLES:
        raise ValueError(f"there is no table {name!r}; choose one of {', '.join(TABLES)}")
    fixed = name == "fixed-budget"
    chosen = [run for run in runs if (run.budget is not None) == fixed]
    if runs and not chosen:
        other = TABLES[not fixed]
        raise ValueError(f"the store has no runs {'with' if fixed else 'without'} a budget; ask for the table {other}")
    found = groups(chosen, mix)
    return fixed_budget(found) if fixed else minimum_norm(found, ks)


def kinds(runs: Iterable[Run]) -> list[str]:
    """Return which tables these runs fill."""
    return [TABLES[fixed] for fixed in sorted({run.budget is not None for run in runs})]


def minimum_norm(found: Sequence[Group], ks: Sequence[float] | None = None) -> Table:
    """Return per group and attack: success rates at ks and ∞, the median, and the cost."""
    runs = [run for group in found for run in group.free]
    wanted = sorted({float(k) for k in (table_ks(runs) if ks is None else ks)})
    # The ends of what is proved are enough where no others were given.
    proved = [k for k in proved_ks(runs) if k in wanted] or wanted
    columns = [CLEAN, *comparable([*wanted, math.inf]), *_proved(proved), *COSTS]
    blocks = [[Line(run, words(run), figures(run, wanted)) for run in group.free] for group in found]
    title = "Minimum-cost attacks" if all(run.unit == COST for run in runs) else "Minimum-norm attacks"
    return _lay_out(title, columns, blocks)


def fixed_budget(found: Sequence[Group]) -> Table:
    """Return per group and attack: the success rate of the run at each budget, and the cost at the smallest."""
    budgets = sorted({float(run.budget) for group in found for run in group.fixed if run.budget is not None})
    columns = [CLEAN, *comparable(budgets, budgeted=True), *_proved(budgets), *COSTS]
    rated = [column.name for column in columns if column.k is not None and column.better]
    # At another budget than the smallest these do not compare.
    costs = [column.name for column in columns if column.k is None and column.name not in (MEMORY, CLEAN.name)]
    blocks = []
    for group in found:
        same: dict[str, list[Run]] = {}
        for run in group.fixed:  # the parameters too: two settings of an attack may have one name
            key = json.dumps([run.name, {**words(run), "samples": ""}, run.info.parameters], sort_keys=True)
            same.setdefault(key, []).append(run)
        lines = [_budget_line(some, columns) for some in same.values()]
        smallest = min(line.run.budget or 0 for line in lines)
        for line in lines:
            line.figures.update(dict.fromkeys(costs if line.run.budget != smallest else ()))
        blocks.append(sorted(lines, key=lambda line: [-(line.figures[name] or -1.0) for name in rated]))
    return _lay_out("Fixed-budget attacks", columns, blocks)


def _budget_line(runs: Sequence[Run], columns: Sequence[Metric]) -> Line:
    """Merge the runs of an attack: a figure at k is of the run with that budget, the rest of the smallest budget."""
    ordered = sorted(runs, key=lambda run: run.budget or 0)
    found = {run.budget: figures(run, ()) for run in ordered}
    first = ordered[0]
    values: dict[str, float | None] = {"samples": found[first.budget]["samples"]}
    for column in columns:
        source = found[first.budget] if column.k is None else found.get(int(column.k), {})
        values |= {f"{column.name}{end}": source.get(f"{column.name}{end}") for end in ("", *ENDS)}
    peaks = [peak for each in found.values() if (peak := each[MEMORY]) is not None]
    done = dict.fromkeys(words(run)["samples"] for run in ordered)
    return Line(first, words(first) | {"samples": ", ".join(done)}, values | {MEMORY: max(peaks, default=None)})


def _lay_out(title: str, columns: Sequence[Metric], blocks: Iterable[Sequence[Line]]) -> Table:
    """Choose the columns: of settings those that differ, of figures those that are known."""
    made = tuple(tuple(block) for block in blocks)
    lines = [line for block in made for line in block]
    known = [column for column in columns if any(line.figures.get(column.name) is not None for line in lines)]
    constant = [CLEAN] if CLEAN in known and len({line.figures[CLEAN.name] for line in lines}) == 1 else []
    differ = []
    for name in lines[0].words:
        pairs = {(line.words[WITHIN[name]] if name in WITHIN else "", line.words[name]) for line in lines}
        if name != "attack" and len(pairs) > len({among for among, _ in pairs}):
            differ.append(name)
    shown = [*(["model"] if "model" in differ else []), "attack", *(name for name in differ if name != "model")]
    return Table(title, tuple(each for each in known if each not in constant), tuple(shown), made, tuple(constant))


def comparable(ks: Sequence[float], budgeted: bool = False) -> list[Metric]:
    """Return the figures by which attacks are compared; with `budgeted`, those that runs with a budget give."""
    found = [each for each in metrics.figures("store", ks) if each.better and not each.hidden]
    return [each for each in found if not (budgeted and each.free) or each.k is not None]


def _proved(ks: Sequence[float]) -> list[Metric]:
    """Return the figures of what is proved, whatever the attack."""
    return [each for each in metrics.figures("store", ks) if each.name.startswith(("median_least", "proved_"))]


def meaning(column: Metric, by_cost: bool = False) -> str:
    """Return what a figure means, in a sentence."""
    if column.name not in HELP and column.name.startswith("asr_"):
        fooled = f"by changes that cost at most {column.k:g}" if by_cost else f"with at most {column.k:g} changes"
        return f"Share of all samples fooled {fooled}, in %."
    if column.name.startswith("proved_"):
        return f"Share of all samples proved to stay correct whichever {column.k:g} values change, in %."
    return HELP.get(column.name, column.title)


def figures(run: Run, ks: Sequence[float]) -> dict[str, float | None]:
    """Return the figures of a run with the ends of their intervals, and its memory."""
    peak = run.info.provenance.get("peak_memory_device")
    return {**summary(run, ks, LEVEL), MEMORY: None if peak is None else peak / GB}


def words(run: Run) -> dict[str, str]:
    """Return the settings of a run in words, in the order of their columns."""
    info, target = run.info, run.info.origin.get("target")
    return {
        "model": info.model,
        "attack": info.attack,
        "data": info.dataset,
        "steps": str(info.steps),
        "goal": info.goal if target is None else f"{info.goal} ({target})",
        "unit": info.unit,
        "seed": str(info.seed),
        "precision": info.precision,
        "version": str(info.version),
        "weights": info.model_sha256[:8],
        "code": run.code,
        "rows": info.data_hash[:8],
        "space": info.space,
        "samples": f"{len(run)}" if len(run) == info.rows else f"{len(run)} of {info.rows}",
    }


def best(block: Sequence[Line], column: Metric) -> float | None:
    """Return the best figure of a block; None where nothing competes, or more than half of the lines have it."""
    found = [value for line in block if (value := line.figures[column.name]) is not None]
    if not column.better or len(found) < 2:
        return None
    first = max(found) if column.better > 0 else min(found)
    return first if 2 * found.count(first) <= len(found) else None


def difference(ours: float | None, theirs: float | None) -> float | None:
    """Return ours less theirs; None if both are infinite or one is absent.

    >>> difference(12.0, 11.0), difference(math.inf, 11.0), difference(None, 1.0), difference(math.inf, math.inf)
    (1.0, inf, None, None)
    """
    if ours is None or theirs is None or (math.isinf(ours) and math.isinf(theirs)):
        return None
    return ours - theirs
