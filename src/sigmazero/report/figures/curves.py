"""Success rate against the number of changes, a panel per model; and what other figures need to make such panels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from sigmazero.core import metrics
from sigmazero.report import measure
from sigmazero.report.figures import style
from sigmazero.report.figures.figure import Figure, Option
from sigmazero.report.intervals import wilson
from sigmazero.report.measure import Measured
from sigmazero.report.optimality import curve, envelope
from sigmazero.report.tables.layout import identity
from sigmazero.store.facts import CellInfo, Facts

VARYING = ("steps", "seed", "precision", "version", "space")


def panels(cells: Sequence[Measured], mix: bool = False) -> list[list[Measured]]:
    """The cells of each model (on the same rows, with the same goal) together; mixtures are refused as in tables."""
    if not cells:
        raise ValueError("the store has no samples yet; run a plan into it first")
    if not mix:
        measure.refuse_mixture([info for info, _ in cells])
    groups: dict[tuple[str, ...], list[Measured]] = {}
    for info, facts in cells:
        groups.setdefault(tuple(identity(info)), []).append((info, facts))
    return list(groups.values())


def draw_curves(cells: Sequence[Measured], *, log: bool = False, mix: bool = False) -> Any:
    """Per model, ASR over k for each attack with its 95 % band, and the best of all attacks per sample.

    A run with a budget tells the rate at its budget alone, so it is a point with a bar.
    """
    groups = panels(cells, mix)
    figure, axes = style.grid(len(groups))
    for axis, group, title in zip(axes, groups, panel_titles(groups), strict=True):
        free = [(info, facts) for info, facts in group if info.budget is None]
        names, end = labels([info for info, _ in group]), last_k(group)
        for info, facts in free:
            _line(axis, info, measure.changes(facts, info.unit), end, names[info.key])
        _points(axis, [cell for cell in group if cell[0].budget is not None], names)
        _envelope(axis, free, end)
        if log:
            # Inputs that are wrong already have 0 changes, so 0 needs a place on the axis.
            axis.set_xscale("symlog", linthresh=1, linscale=0.3)
            axis.xaxis.set_major_formatter("{x:g}")
        axis.set(xlim=(0, end), ylim=(0, 101), ylabel="attack success rate, %", title=style.plain(title))
        axis.set_xlabel(measure.axis(group[0][0].unit))
        style.legend(axis)
        style.tidy(axis)
    return figure


def labels(infos: Sequence[CellInfo]) -> dict[str, str]:
    """What a figure calls each cell of a panel."""
    return {key: style.plain(name) for key, name in names(infos).items()}


def names(infos: Sequence[CellInfo]) -> dict[str, str]:
    """What to call each cell of a panel: its attack, and what sets it apart from others of that name."""
    named = {}
    for info in infos:
        same = [other for other in infos if (other.attack, other.budget) == (info.attack, info.budget)]
        differ = [name for name in VARYING if len({getattr(other, name) for other in same}) > 1]
        named[info.key] = ", ".join([info.attack, *(f"{name} {getattr(info, name)}" for name in differ)])
    return named


def band(l0: Any) -> tuple[Any, Any, Any, Any]:
    """The k where the rate jumps, the rate from there on, and the ends of its interval by Wilson; all in percent."""
    ks, rates = curve(l0)
    ends = np.array([wilson(round(rate * len(l0)), len(l0)) for rate in rates])
    return ks, 100 * rates, 100 * ends[:, 0], 100 * ends[:, 1]


def _line(axis: Any, info: CellInfo, l0: Any, end: float, label: str) -> None:
    colour, dash = style.colour(info.attack), style.dash(info.attack)
    # The last value is repeated at the right edge: up to there the rate stays the same.
    ks, rate, low, high = (np.append(each, each[-1]) for each in band(l0))
    ks[-1] = end
    axis.fill_between(ks, low, high, step="post", color=colour, alpha=0.12, linewidth=0)
    axis.step(ks, rate, where="post", color=colour, linestyle=dash, linewidth=1.6, label=label)


def _points(axis: Any, cells: Sequence[Measured], names: dict[str, str]) -> None:
    rows: dict[str, list[tuple[float, ...]]] = {}
    colours = {names[info.key]: style.colour(info.attack) for info, _ in cells}
    for info, facts in cells:
        k = float(info.budget or 0)
        l0 = measure.changes(facts, info.unit)
        rate = metrics.asr(l0, k)
        low, high = wilson(round(rate * len(l0)), len(l0))
        rows.setdefault(names[info.key], []).append((k, 100 * rate, 100 * (rate - low), 100 * (high - rate)))
    for label, points in rows.items():
        ks, rates, below, above = np.array(sorted(points)).T
        # Rounding may put the end of an interval just inside the rate, and a bar cannot be negative.
        bars = np.maximum([below, above], 0)
        axis.errorbar(ks, rates, bars, color=colours[label], fmt="o", markersize=4, capsize=2, label=f"{label} at k")


def best_of_all(free: Sequence[Measured]) -> tuple[str, Any] | None:
    """A name for the best of two or more attacks, and its l0 per sample, over the rows that all of them have."""
    if len(free) < 2:
        return None
    common = reduce(np.intersect1d, [facts.row for _, facts in free])
    if not len(common):
        return None
    pool: list[Facts] = [facts.take(np.isin(facts.row, common)) for _, facts in free]
    some = "" if all(len(facts) == len(common) for _, facts in free) else f" ({len(common)} rows all have)"
    return f"best of all{some}", envelope(pool, free[0][0].unit).l0


def _envelope(axis: Any, free: Sequence[Measured], end: float) -> None:
    found = best_of_all(free)
    if found is None:
        return
    label, l0 = found
    ks, rates = curve(l0)
    edge, last = np.append(ks, end), 100 * np.append(rates, rates[-1])
    axis.step(edge, last, where="post", color=style.BEST, linestyle=":", linewidth=1.4, label=label)


def last_k(group: Sequence[Measured]) -> float:
    """Where the axis of a panel ends: a little beyond the largest number of changes found."""
    found = [measure.changes(facts, info.unit) for info, facts in group if info.budget is None]
    largest = [float(l0[np.isfinite(l0)].max(initial=0)) for l0 in found]
    return 1.05 * max([1.0, *largest, *(float(info.budget) for info, _ in group if info.budget is not None)])


def panel_titles(groups: Sequence[Sequence[Measured]]) -> list[str]:
    """The titles of panels; where two would be the same, what may change tells them apart."""
    plain = [panel_title(group[0][0]) for group in groups]
    return [
        f"{title}, space {group[0][0].space}" if plain.count(title) > 1 else title
        for title, group in zip(plain, groups, strict=True)
    ]


def panel_title(info: CellInfo) -> str:
    """The model and the data of a panel, and the goal unless it is the usual one."""
    return f"{info.model} on {info.dataset}" + ("" if info.goal == "untargeted" else f", {info.goal}")


FIGURE = Figure(
    "curves",
    "ASR against k per model, as .pdf, .svg or .png.",
    lambda request: draw_curves(request.cells, log=bool(request.options.get("log")), mix=request.mix),
    options=(Option("log", "With --curves: a logarithmic k.", bool),),
)
