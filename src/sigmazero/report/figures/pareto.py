"""The cost of an attack against what it finds, a panel per model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sigmazero.core import metrics
from sigmazero.report import measure
from sigmazero.report.figures import style
from sigmazero.report.figures.curves import labels, panel_titles, panels
from sigmazero.report.figures.figure import Figure
from sigmazero.report.measure import Measured


def frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that none beats in both, by cost.

    >>> frontier([(1, 9), (2, 9), (3, 4), (4, 5)])
    [(1, 9), (3, 4)]
    """
    kept: list[tuple[float, float]] = []
    for point in sorted(points):
        if not kept or point[1] < kept[-1][1]:
            kept.append(point)
    return kept


def draw_pareto(cells: Sequence[Measured], *, mix: bool = False) -> Any:
    """Per model, queries per sample against the median l0, and the attacks that none beats in both."""
    free = [(info, facts) for info, facts in cells if info.budget is None]
    if cells and not free:
        raise ValueError("every run in the store has a budget, so there are no medians to draw; curves show such runs")
    groups = panels(free, mix)
    figure, axes = style.grid(len(groups))
    for axis, group, title in zip(axes, groups, panel_titles(groups), strict=True):
        unit = group[0][0].unit
        what = unit if unit == measure.COST else f"l0, {unit}s"
        _scatter(axis, group)
        axis.set(ylabel=f"median {what}", title=style.plain(title))
        axis.set_xlabel("queries per sample (forward and backward)")
        style.legend(axis)
        style.tidy(axis)
    return figure


def _scatter(axis: Any, group: Sequence[Measured]) -> None:
    """The points of a panel; an attack that fails on half of the samples stands at the top as a triangle."""
    names = labels([info for info, _ in group])
    cost = {info.key: metrics.queries(measure.samples(info, facts)) for info, facts in group}
    median = {info.key: metrics.median(measure.changes(facts, info.unit)) for info, facts in group}
    finite = [(cost[key], median[key]) for key in cost if math.isfinite(median[key])]
    top = 1.15 * max([1.0, *(height for _, height in finite)])
    for info, _ in group:
        lost = math.isinf(median[info.key])
        label, marker = names[info.key] + (" (∞)" if lost else ""), "^" if lost else "o"
        place = [cost[info.key]], [min(median[info.key], top)]
        axis.plot(*place, marker, color=style.colour(info.attack), label=label, clip_on=False)
    low, high = min(cost.values()), max(cost.values())
    wide = high > 10 * low > 0  # within one power of ten a logarithmic axis has nothing to write on it
    axis.set(xscale="log" if wide else "linear", ylim=(0, top), xlim=(low / 2 if wide else 0, high * 1.1))
    if finite:
        xs, ys = zip(*frontier(finite), strict=True)
        axis.step([*xs, high * 1.1], [*ys, ys[-1]], where="post", color=style.BEST, linewidth=0.8, zorder=0)


FIGURE = Figure(
    "pareto",
    "Queries against median l0, as .pdf, .svg or .png.",
    lambda request: draw_pareto(request.cells, mix=request.mix),
)
