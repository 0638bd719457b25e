"""Draw what an attack costs against what it finds, a panel per model."""

import math
from collections.abc import Sequence
from typing import Any

from sigmazero.core import metrics
from sigmazero.report.figures import style
from sigmazero.report.figures.figure import Request, figure
from sigmazero.report.runs import COST, Group


def frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that none beats in both, by cost.

    >>> frontier([(1, 9), (2, 9), (3, 4), (4, 5)])
    [(1, 9), (3, 4)]
    """
    front: list[tuple[float, float]] = []
    for point in sorted(points):
        if not front or point[1] < front[-1][1]:
            front.append(point)
    return front


@figure("pareto", "Queries against the median number of changes per model, as .pdf, .svg or .png.")
def draw_pareto(request: Request) -> Any:
    """Draw per model queries per sample against the median, and the attacks that none beats in both.

    An attack that fails on half of the samples stands at the top as a triangle.
    """
    groups = [group for group in request.groups if group.free]
    if not groups:
        raise ValueError("every run in the store has a budget, so there are no medians to draw; curves show such runs")
    drawn, axes = style.grid(len(groups))
    for axis, group in zip(axes, groups, strict=True):
        _panel(axis, group)
    return drawn


def _panel(axis: Any, group: Group) -> None:
    points = {run: (max(metrics.queries(run.samples), 1.0), metrics.median(run.changes)) for run in group.free}
    finite = [point for point in points.values() if math.isfinite(point[1])]
    top = 1.8 * max([1.0, *(median for _, median in finite)])
    for run, (queries, median) in points.items():
        label = style.plain(run.name) + (" (∞)" if math.isinf(median) else "")
        marker = "^" if math.isinf(median) else "o"
        colour = style.colour(run.info.attack)
        axis.plot([queries], [min(median, top)], marker, color=colour, linestyle="none", label=label, clip_on=False)
    if finite:
        xs, ys = zip(*frontier(finite), strict=True)
        end = 1.6 * max(queries for queries, _ in points.values())
        axis.step([*xs, end], [*ys, ys[-1]], where="post", color=style.BEST, linewidth=0.8, zorder=0)
    axis.set_xscale("log")
    axis.set_yscale("symlog", linthresh=1, linscale=0.3)  # half of the samples may be wrong already: 0 needs a place
    axis.set_ylim(bottom=-0.2, top=1.1 * top)
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_formatter("{x:g}")
    unit = COST if group.unit == COST else f"number of changed {group.unit}s"
    axis.set(ylabel=f"median {unit}", xlabel="queries per sample (forward and backward)")
    axis.set_title(style.plain(f"{group.title}, {group.count}"), fontsize=11)
    style.legend(axis)
    style.tidy(axis)
