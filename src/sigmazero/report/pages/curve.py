"""Draw step curves for pages.

A curve is an SVG path in percent of the plot, so that a browser can scale the lines while labels stay legible HTML.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sigmazero.core import metrics
from sigmazero.core.metrics import Floats
from sigmazero.report.figures import style
from sigmazero.report.figures.curves import BEST, PROVED
from sigmazero.report.intervals import wilson
from sigmazero.report.runs import COST, Group, Run, band

WIDTH = 1000  # places across a plot; jumps that share one are drawn as one
READ = 400  # about the most places that show numbers under the pointer
INK, GREY = "var(--ink)", "var(--muted)"


@dataclass(frozen=True)
class Series:
    """One curve: the changes of every sample (∞: not fooled), how it looks, and whether its interval is shaded."""

    label: str
    colour: str
    changes: Floats
    dash: str = ""
    shaded: bool = False


def chart(
    name: str,
    caption: str,
    series: Sequence[Series],
    *,
    end: float,
    unit: str,
    points: Sequence[Run] = (),
    gap: tuple[Floats, Floats] | None = None,
    falling: bool = False,
    note: str = "",
) -> dict[str, Any]:
    """Return what the macro `chart` draws, and under "data" what the script reads at the pointer.

    end      where the axis ends
    unit     what is counted along it
    points   runs with a budget, which give one rate each: a dot with its interval
    gap      the fewest changes found and those proved to be needed, per sample: the truth lies between their curves
    falling  draw robust accuracy instead of the success rate
    """
    ks = read_at(end, [one.changes for one in series], whole=unit != COST)
    drawn, numbers = [], []
    for one in series:
        at, rate, low, high = rates(one.changes, falling)
        shade = path(at, high, end) + path(at, low, end, back=True) if one.shaded else ""
        drawn.append(
            {"label": one.label, "colour": one.colour, "dash": one.dash, "line": path(at, rate, end), "band": shade}
        )
        places = np.searchsorted(at, ks, side="right") - 1
        read = {"rate": rate, "low": low, "high": high} if not one.dash else {"rate": rate}
        values = {key: np.round(each[places], 2).tolist() for key, each in read.items()}
        numbers.append({"label": one.label, "colour": one.colour, **values})
    between = ""
    if gap is not None:
        found, least = (rates(each, falling) for each in gap)
        between = path(least[0], least[1], end) + path(found[0], found[1], end, back=True)
    return {
        "name": name,
        "caption": caption,
        "series": drawn[::-1],  # the first one is drawn last, on top
        "points": [_point(run, end) for run in points],
        "gap": between,
        "axis": "cost of all changes, at most" if unit == COST else f"k, {unit}s changed at most",
        "ticks": [(100 * k / end, f"{k:g}") for k in ticks(end, unit != COST)],
        "note": note,
        "data": {"end": end, "word": COST if unit == COST else "k", "ks": ks.tolist(), "series": numbers},
    }


def _point(run: Run, end: float) -> dict[str, Any]:
    k = float(run.budget or 0)
    rate = metrics.asr(run.changes, k)
    low, high = wilson(round(rate * len(run)), len(run))
    look = {"label": run.title, "colour": colour(run.info.attack), "left": 100 * k / end}
    return {**look, "rate": 100 * rate, "low": 100 * low, "high": 100 * high}


def rates(changes: Floats, falling: bool = False) -> tuple[Floats, ...]:
    """Return where a curve jumps, its height from there on in percent, and the ends of its interval."""
    ks, *shares = band(changes)
    rate, low, high = (100 * each for each in shares)
    return (ks, 100 - rate, 100 - high, 100 - low) if falling else (ks, rate, low, high)


def path(ks: Floats, heights: Floats, end: float, back: bool = False) -> str:
    """Return a step function as SVG, from 0 to the end; `back` closes an area under the path before it."""
    inside = ks <= end
    xs, ys = np.round(WIDTH * ks[inside] / end) * 100 / WIDTH, 100 - heights[inside]
    last = np.append(xs[1:] != xs[:-1], True)  # of the jumps that share a place, the last one counts
    xs, ys = xs[last], ys[last]
    if back:
        corners = zip([100.0, *xs[:0:-1]], ys[::-1], strict=True)
        return "".join(f"H{x:.4g}V{y:.4g}" for x, y in corners) + "H0Z"
    return f"M0,{ys[0]:.4g}" + "".join(f"H{x:.4g}V{y:.4g}" for x, y in zip(xs[1:], ys[1:], strict=True)) + "H100"


def read_at(end: float, found: Sequence[Floats], whole: bool) -> Floats:
    """Return the places whose numbers a reader sees: every number of changes, or where costs jump, if not too many."""
    if whole and end <= READ:
        return np.arange(math.floor(end) + 1, dtype=np.float64)
    jumps = np.unique(np.concatenate([[0.0], *(each[each <= end] for each in found)]))
    places = np.unique(np.linspace(0, len(jumps) - 1, READ).round().astype(np.int64))
    return np.asarray(jumps[places], dtype=np.float64)


def ticks(end: float, whole: bool = False) -> list[float]:
    """Return about five round numbers from 0 to the end, or whole ones.

    >>> ticks(52.5), ticks(1.05), ticks(2.1, whole=True)
    ([0.0, 10.0, 20.0, 30.0, 40.0, 50.0], [0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 1.0, 2.0])
    """
    power = 10.0 ** math.floor(math.log10(end / 7))
    step = next(power * times for times in (1, 2, 5, 10) if end / (power * times) <= 7)
    step = max(step, 1.0) if whole else step
    return [float(f"{step * k:.6g}") for k in range(math.floor(end / step + 1e-9) + 1)]


# The curves of a group ------------------------------------------------------------------------------------------------


def on_both(light: str) -> str:
    """Return a colour for CSS, in both themes."""
    return f"light-dark({light}, {style.DARK.get(light, light)})"


def colour(attack: str) -> str:
    """Return an attack's colour for CSS, in both themes."""
    return on_both(style.colour(attack))


def group_chart(group: Group, name: str) -> dict[str, Any]:
    """Return the chart of a group: its runs, the best of all, runs with a budget as points, and what is proved."""
    series = [
        Series(run.name, colour(run.info.attack), run.changes, style.css_dash(run.name), shaded=run is group.strongest)
        for run in group.free
    ]
    if len(group.pool) > 1 and group.free:
        series.append(Series(BEST, INK, group.best.changes, "1 3"))
    gap = None if group.lower is None else (group.best.changes, group.lower)
    if gap is not None:
        series.append(Series(PROVED, GREY, gap[1], "8 3 2 3"))
    cut = ", ".join(f"{label} to {k:g}" for label, k in group.cut.items())
    return chart(
        name,
        f"{group.title}, {group.count}: share of all samples fooled "
        + ("by changes that cost at most c" if group.unit == COST else f"with at most k changed {group.unit}s"),
        series,
        end=group.end,
        unit=group.unit,
        points=group.fixed,
        gap=gap,
        note=f"The axis ends before these curves do: {cut}." if cut else "",
    )
