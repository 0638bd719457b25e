"""The cost of an attack against what it finds, a panel per model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sigmazero.core import metrics
from sigmazero.report import measure
from sigmazero.report.figures import labels, style
from sigmazero.report.figures.curves import counted, names, panel_titles, panels
from sigmazero.report.figures.figure import Figure
from sigmazero.report.measure import Measured

WIDTH, HEIGHT, LEFT, BELOW = 4.6, 3.5, 0.75, 0.55  # of a panel in inches, and what is beside and below its axes


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
    """Per model, queries per sample against the median l0, and the attacks that none beats in both.

    Axes are logarithmic and the same in all panels, as far as panels count the same. An attack that fails on half of
    the samples stands at the top as a triangle.
    """
    free = [(info, facts) for info, facts in cells if info.budget is None]
    if cells and not free:
        raise ValueError("every run in the store has a budget, so there are no medians to draw; curves show such runs")
    groups = panels(free, mix)
    figure, axes = _grid(len(groups))
    found = [_points(group) for group in groups]
    for axis, group, points, title in zip(axes, groups, found, panel_titles(groups), strict=True):
        unit = group[0][0].unit
        alike = [one for one, other in zip(found, groups, strict=True) if other[0][0].unit == unit]
        _scatter(axis, points, [point for one in alike for point in one])
        what = unit if unit == measure.COST else f"l0, {unit}s"
        axis.set(ylabel=f"median {what}", xlabel="queries per sample (forward and backward)")
        axis.set_title(style.plain(f"{title}, {counted(group)}"), fontsize=11)
        style.tidy(axis)
        line = list(axis.lines[-1].get_path().vertices) if axis.lines else []
        labels.write(axis, [p.at for p in points], [p.name for p in points], [p.colour for p in points], line)
    return figure


def _grid(panels: int) -> tuple[Any, list[Any]]:
    """A figure whose axes have their places at once, in inches: names are put where points are."""
    across = min(panels, 3)
    width, height = WIDTH * across, HEIGHT * -(-panels // across)
    figure = style.figure(width, height)
    figure.set_layout_engine("none")
    axes = []
    for number in range(panels):
        left, bottom = WIDTH * (number % across) + LEFT, height - HEIGHT * (number // across + 1) + BELOW
        box = left / width, bottom / height, (WIDTH - LEFT - 0.15) / width, (HEIGHT - BELOW - 0.35) / height
        axes.append(figure.add_axes(box))
    return figure, axes


@dataclass(frozen=True)
class Point:
    """An attack: what it spends and what it finds."""

    name: str
    colour: str
    queries: float
    median: float
    top: float = math.inf

    @property
    def at(self) -> tuple[float, float]:
        """Its place; one that fails on half of the samples stands at the top."""
        return self.queries, min(self.median, self.top)


def _points(group: Sequence[Measured]) -> list[Point]:
    called = names([info for info, _ in group])
    return [
        Point(
            style.plain(called[info.key]) + (" (∞)" if math.isinf(median) else ""),
            style.colour(info.attack),
            metrics.queries(measure.samples(info, facts)),
            median,
        )
        for info, facts in group
        for median in [metrics.median(measure.changes(facts, info.unit))]
    ]


def _scatter(axis: Any, points: list[Point], alike: Sequence[Point]) -> None:
    """The points of a panel, on axes that hold those of all panels like it."""
    finite = [point.median for point in alike if math.isfinite(point.median)]
    top = 1.8 * max([1.0, *finite])
    points[:] = [replace(point, top=top) for point in points]
    asked = [max(point.queries, 1.0) for point in alike]
    right = 1.6 * max(asked)
    axis.set_xscale("log")
    # Half of the samples may be wrong already: 0 changes need a place.
    axis.set_yscale("symlog", linthresh=1, linscale=0.3)
    low = min(finite, default=1.0)
    axis.set(xlim=(min(asked) / 1.6, right), ylim=(-0.2 if low <= 1 else max(1.0, low / 1.8), 1.1 * top))
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_formatter(lambda value, _: f"{value:g}")
        side.set_minor_formatter(lambda value, _: f"{value:g}" if _leading(value) in (2, 5) else "")
    axis.yaxis.set_minor_locator(_between(axis))
    axis.tick_params(labelsize=8, which="both", length=3, pad=3)
    for point in points:
        marker = "^" if math.isinf(point.median) else "o"
        axis.plot([point.queries], [point.at[1]], marker, color=point.colour, clip_on=False)
    held = frontier([(point.queries, point.median) for point in points if math.isfinite(point.median)])
    if held:
        xs, ys = zip(*held, strict=True)
        corners = [(x, y) for before, x, now in zip((ys[0], *ys[:-1]), xs, ys, strict=True) for y in (before, now)]
        axis.plot(*zip(*corners, (right, ys[-1]), strict=True), color=style.BEST, linewidth=0.8, zorder=0)


def _between(axis: Any) -> Any:
    from matplotlib.ticker import SymmetricalLogLocator

    return SymmetricalLogLocator(axis.yaxis.get_transform(), subs=(2, 5))


def _leading(value: float) -> int:
    """The first digit of a number.

    >>> _leading(0.2), _leading(50), _leading(0)
    (2, 5, 0)
    """
    return int(f"{value:e}"[0]) if value > 0 else 0


FIGURE = Figure(
    "pareto",
    "Queries against median l0, as .pdf, .svg or .png.",
    lambda request: draw_pareto(request.cells, mix=request.mix),
)
