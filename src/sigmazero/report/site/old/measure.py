"""The figures of the cells of a store: what `core.metrics` knows, for one cell or for a table of them.

Queries are those of `Result`: the clean check and the final verification count, the paper leaves them out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np

from sigmazero.core import metrics
from sigmazero.core.metrics import DEFAULT_KS, Floats, Metric, Samples
from sigmazero.report.intervals import median_interval, wilson
from sigmazero.report.site.old.proved import lower, proved_ks, with_bounds
from sigmazero.report.spaces import site_costs
from sigmazero.store.facts import CellInfo, Facts, Integers
from sigmazero.store.store import Store

Measured = tuple[CellInfo, Facts]
Figures = dict[str, float | None]
Record = dict[str, str | float | None]

SHOWN = 5  # rows or cells that an error names
NAMES = ("model", "dataset", "attack", "version", "steps", "unit", "goal", "budget", "seed", "precision", "space")
# What may not differ within a table, and among which cells: those alike in that, or all.
ALIKE = {"version": "attack", "precision": None, "unit": None, "data_hash": "dataset", "model_sha256": "model"}


TRANSFER = "transfer"  # in the origin of a cell whose points were found on another model: the key of that cell
COST = "cost"  # the unit of cells whose changes are counted by what they cost


def axis(unit: str) -> str:
    """What a curve of success rates is drawn over."""
    return "cost of all changes at most" if unit == COST else f"k, {unit}s changed at most"


def word(unit: str) -> str:
    """What the axis of such a curve is called in short."""
    return COST if unit == COST else "k"


class MixtureError(ValueError):
    """Cells that do not compare were to stand in one table."""


def load(store: Store, keys: Collection[str] | None = None) -> list[Measured]:
    """The cells of attacks that have facts, without perturbations: enough for every figure; with what is proved.

    Cells of examples that were found on other models (`bench.transfer`) are no attacks of their own, and left out; so
    are superseded cells, unless they are named.
    """
    old = store.superseded()
    named = [info for info in store.cells() if (info.key not in old if keys is None else info.key in keys)]
    chosen = [info for info in named if TRANSFER not in info.origin]
    pairs = [(info, store.facts(info.key, perturbations=False)) for info in chosen]
    return [(info, with_bounds(store, info, facts)) for info, facts in pairs if len(facts)]


def over(cells: Iterable[Measured], what: str = "changes") -> list[Measured]:
    """The cells with their changes counted as such or, over "cost", by what they cost: those that have costs."""
    if what not in ("changes", COST):
        raise ValueError(f"over {what!r}: choose one of changes, {COST}")
    if what == "changes":
        return list(cells)
    # A budget counts changes: what is cheapest was not looked for.
    return [(replace(info, unit=COST), facts) for info, facts in cells if info.budget is None and has_costs(facts)]


def has_costs(facts: Facts) -> bool:
    """Whether not every change of these samples cost 1."""
    return not bool(np.isnan(facts.cost).all())


def changes(facts: Facts, unit: str) -> Floats:
    """l0 in a unit: that of the cell, `info.unit`, for its own figures; in unit "cost" what the changes cost."""
    if unit not in ("feature", "pixel", COST):
        raise ValueError(f"unit={unit!r}: choose one of feature, pixel, {COST}")
    if unit == COST:
        return np.where(np.isnan(facts.cost), facts.l0, facts.cost)
    return np.asarray(facts.l0_pixel if unit == "pixel" else facts.l0, dtype=np.float64)


def fitting(cells: Iterable[Measured]) -> list[float]:
    """The numbers of changes, or the costs, that success rates are given at: what fits the inputs of these cells.

    Where something is proved, also those at which it is.
    """
    chosen = list(cells)
    return sorted({*proved_ks(chosen), *(float(k) for info, _ in chosen for k in _fitting(info))})


def _fitting(info: CellInfo) -> Sequence[float]:
    shape, costs = info.about.get("shape"), site_costs(info)
    if info.unit == COST and costs is not None:
        return metrics.fitting_costs(costs)
    if shape is None:
        return DEFAULT_KS
    pixels = math.prod(shape[1:]) if info.unit == "pixel" and len(shape) > 1 else None
    return metrics.fitting_ks(shape, pixels if costs is None else len(costs))


def samples(info: CellInfo, facts: Facts) -> Samples:
    """What figures are computed from."""
    return Samples(
        changes=changes(facts, info.unit),
        outcome=facts.outcome,
        forwards=facts.forwards,
        backwards=facts.backwards,
        seconds=facts.seconds,
        clean_prediction=facts.clean_prediction,
        label=facts.label,
        returned=None if np.isnan(facts.returned).all() else facts.returned,
        least=lower(info, facts),
    )


def summary(info: CellInfo, facts: Facts, ks: Sequence[float] = DEFAULT_KS, level: float | None = None) -> Figures:
    """The figures one reports of a cell; with `level` also the ends of the intervals of success rates and median.

    A run with a budget ends a sample once the budget suffices, and some attacks look no further than the budget. So
    it tells the success rate at its budget and nothing else: below it there is but a lower bound, and medians and
    means would be of numbers that no search made small. Those figures are None, never a bound in disguise.
    """
    if not len(facts):
        raise ValueError(f"cell {info.key} ({info.attack} on {info.model}) has no samples yet: leave it out, or run it")
    found = samples(info, facts)
    asked = sorted({*map(float, ks), math.inf, *([] if info.budget is None else [float(info.budget)])})
    figures: Figures = {"samples": len(found), "missing": info.rows - len(found)}
    for each in metrics.asked("store", asked):
        value = each.value(found) if each.known(info.budget) else None
        figures[each.name] = None if value is None or math.isnan(value) else value
        if level is not None and (each.name == "median_l0" or each.k is not None):
            low, high = (None, None) if value is None else _interval(each, found, value, level)
            figures |= {f"{each.name}_low": low, f"{each.name}_high": high}
    return figures


def _interval(metric: Metric, found: Samples, value: float, level: float) -> tuple[float, float]:
    if metric.kind == "share":
        return wilson(round(value * len(found)), len(found), level)
    return median_interval(found.changes, level)


def table(
    cells: Iterable[Measured], ks: Sequence[float] | None = None, mix: bool = False, level: float | None = None
) -> list[Record]:
    """What identifies each cell, and its summary: one row per cell, with the same headings in all.

    Success rates are those at `ks` (by default what fits the inputs) and at every budget among the cells. Facts without
    perturbations will do. Cells that do not compare are refused, as `refuse_mixture` says, unless `mix` allows it.
    """
    chosen = list(cells)
    if not mix:
        refuse_mixture([info for info, _ in chosen])
    asked = [*(fitting(chosen) if ks is None else ks), *(info.budget for info, _ in chosen if info.budget is not None)]
    return [
        {"cell": info.key, **{name: getattr(info, name) for name in NAMES}, **summary(info, facts, asked, level)}
        for info, facts in chosen
    ]


def refuse_mixture(infos: Iterable[CellInfo]) -> None:
    """Raise if cells differ in what a reader takes to be the same in one table.

    That is the version of an attack, the precision, the unit, the rows of a data set and the weights of a model. Steps,
    budgets, goals and seeds may differ: a table shows them.
    """
    everything = list(infos)
    for name, among in ALIKE.items():
        groups: dict[str, list[CellInfo]] = {}
        for info in everything:
            groups.setdefault(f"{among} {getattr(info, among)}" if among else "the cells", []).append(info)
        for group, members in groups.items():
            if len({getattr(info, name) for info in members}) > 1:
                fix = "leave all but one out, or give mix=True to have them side by side"
                raise MixtureError(f"{group}: more than one {name} in a table ({named(members, name)}); {fix}")


def named(infos: Sequence[CellInfo], name: str) -> str:
    """For an error: the values of a field, and under each some of the cells that have it."""
    values: dict[str, list[str]] = {}
    for info in infos:
        values.setdefault(str(getattr(info, name)), []).append(info.key)
    return "; ".join(f"{value}: cells {few(keys)}" for value, keys in values.items())


def few(items: Sequence[object] | Integers) -> str:
    """For an error: some of many things."""
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return (", ".join(str(item) for item in items[:SHOWN]) or "none") + more
