"""Draw the success rate against the number of changes, a panel per model."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sigmazero.core import metrics
from sigmazero.core.metrics import Floats
from sigmazero.core.result import Result
from sigmazero.report.figures import style
from sigmazero.report.figures.figure import Option, Request, figure
from sigmazero.report.intervals import wilson
from sigmazero.report.runs import COST, Group, Run, band

NOTE = (
    "Shares are of all n samples, with 95 % intervals (Wilson):\n"
    "a band around the strongest attack, bars at single budgets."
)
GAP = "\nHatched: what is neither fooled nor proved to stay correct; the truth for these samples lies there."
BEST, PROVED = "best of all", "at most, proved"


@figure(
    "curves",
    "Success rate over the number of changes per model, as .pdf, .svg or .png.",
    Option("log", "A logarithmic k.", bool),
    Option("until", "The k at which the axis ends; by default where most attacks are seen well."),
)
def draw_curves(request: Request) -> Any:
    """Draw the curves of a request."""
    return draw(request.groups, log=bool(request.options.get("log")), until=request.options.get("until"))


def draw(groups: Sequence[Group], *, log: bool = False, until: int | None = None) -> Any:
    """Draw per group the curve of each attack, the band of the strongest, and the best of all attacks per sample.

    A run with a budget gives the rate at its budget alone, so it is a point with a bar; thin lines join the points of
    an attack. The axis ends at `until`, by default at `Group.end`; a logarithmic axis has room for all.
    """
    if until is not None and until < 1:
        raise ValueError(f"until={until}: give 1 or more changes")
    drawn, axes = style.grid(len(groups))
    for axis, group in zip(axes, groups, strict=True):
        _panel(axis, group, log, until)
    gaps = any(group.lower is not None for group in groups)
    drawn.supxlabel(NOTE + (GAP if gaps else ""), fontsize=7, color="#555555")
    return drawn


def _panel(axis: Any, group: Group, log: bool, until: int | None) -> None:
    last = max([1.0, *(float(run.changes[np.isfinite(run.changes)].max(initial=0)) for run in group.free)])
    end = float(until) if until else 1.05 * last if log else group.end
    for run in group.free:
        strongest = run is group.strongest
        colour, dash = style.colour(run.info.attack), style.dash(run.info.attack)
        step(axis, run.changes, end, label=style.plain(run.name), color=colour, linestyle=dash, shade=0.2 * strongest)
        if (run.changes[np.isfinite(run.changes)] > end).any():
            axis.plot([end], [100 * metrics.asr(run.changes, end)], ">", color=colour, clip_on=False)
    _points(axis, group.fixed)
    if len(group.pool) > 1 and group.free:
        step(axis, group.best.changes, end, label=BEST, color=style.BEST, linestyle=":", linewidth=1.4)
    if group.lower is not None:
        _gap(axis, group.best.changes, group.lower, end)
    if log:
        axis.set_xscale("symlog", linthresh=1, linscale=0.3)  # samples that are wrong already need 0 changes
        axis.xaxis.set_major_formatter("{x:g}")
    elif group.unit != COST:
        axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set(xlim=(0, end), ylim=(0, 101), ylabel="attack success rate, %")
    axis.set_title(style.plain(f"{group.title}, {group.count}"), fontsize=11)
    axis.set_xlabel("cost of all changes, at most" if group.unit == COST else f"k, {group.unit}s changed at most")
    style.legend(axis)
    style.tidy(axis)


def step(axis: Any, changes: Floats, end: float, *, shade: float = 0.0, **look: Any) -> Any:
    """Draw the share of samples fooled over k up to `end`, with its 95 % band where `shade` is above 0."""
    ks, *shares = band(changes)
    inside = ks <= end
    # The last value is repeated at the right edge: up to there the rate stays the same.
    ks, (rate, low, high) = np.append(ks[inside], end), (100 * np.append(s[inside], s[inside][-1]) for s in shares)
    (line,) = axis.step(ks, rate, where="post", **{"linewidth": 1.6, **look})
    if shade:
        axis.fill_between(ks, low, high, step="post", color=line.get_color(), alpha=shade, linewidth=0)
    return line


def draw_result(axis: Any, result: Result, **look: Any) -> float:
    """Draw the curve of one result, and return where its samples are all fooled, or a little beyond."""
    changes = result.samples().changes
    end = 1.05 * max(1.0, float(changes[np.isfinite(changes)].max(initial=0)))
    if len(changes):
        step(axis, changes, end, linewidth=2, **look)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set(ylim=(0, 101), xlabel=f"k, {result.unit}s changed at most", ylabel="attack success rate, %")
    style.tidy(axis)
    return end


def _points(axis: Any, runs: Sequence[Run]) -> None:
    for name in dict.fromkeys(run.name for run in runs):
        same = sorted((run for run in runs if run.name == name), key=lambda run: run.budget or 0)
        ks = [float(run.budget or 0) for run in same]
        rates = np.array([metrics.asr(run.changes, k) for run, k in zip(same, ks, strict=True)])
        ends = [wilson(round(rate * len(run)), len(run)) for run, rate in zip(same, rates, strict=True)]
        low, high = np.array(ends).T
        bars = 100 * np.maximum([rates - low, high - rates], 0)  # rounding may make one negative
        colour = style.colour(same[0].info.attack)
        look = {"color": colour, "fmt": "o-", "markersize": 4, "capsize": 2, "linewidth": 0.8}
        axis.errorbar(ks, 100 * rates, bars, label=style.plain(f"{name} at k"), **look)


def _gap(axis: Any, found: Floats, least: Floats, end: float) -> None:
    """Hatch what lies between what attacks fool and what may fall at most, by what is proved."""
    ks = np.unique(np.concatenate([[0.0, end], *(each[each <= end] for each in (found, least))]))
    below, above = (100 * np.array([metrics.asr(each, k) for k in ks]) for each in (found, least))
    axis.fill_between(ks, below, above, step="post", facecolor="none", edgecolor=style.GAP, hatch="////", linewidth=0)
    axis.step(ks, above, where="post", color=style.GAP, linestyle="-.", linewidth=1.2, label=PROVED, zorder=1)
