"""The curves of a page: what `curves` and `measure` compute, as data for the chart library, and as tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sigmazero.core import metrics
from sigmazero.core.metrics import DEFAULT_KS
from sigmazero.report.figures import style
from sigmazero.report.intervals import wilson
from sigmazero.report.site.old import colours, curves, measure, window
from sigmazero.report.site.old import htmltables as tables
from sigmazero.report.site.old.htmltables import HtmlCell, HtmlTable
from sigmazero.report.site.old.measure import Measured
from sigmazero.report.site.old.shell import Html, element
from sigmazero.report.site.old.text import number

# uPlot 1.6.32, MIT licence, as published: these files are not to be changed.
VENDORED = {
    "vendor/uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "vendor/uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "vendor/uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
SCRIPTS = ("vendor/uPlot.iife.min.js", "assets/downloads.js", "assets/charts.js")
STYLES = ("vendor/uPlot.min.css", "assets/charts.css")
POINTS = 600  # about so many places k are given of a curve that jumps at more
LISTED = (0, 1, 5, *DEFAULT_KS, 100, 250, 500, 1000)  # the k of the table under a chart, as far as it goes


@dataclass(frozen=True)
class Chart:
    """A chart: its place on the page, its title, what the script draws, and the same in numbers."""

    name: str
    title: str
    data: dict[str, Any]
    table: HtmlTable


def build(cells: Sequence[Measured], mix: bool = False) -> list[Chart]:
    """One chart per model: for each attack the success rate and the ends of its interval, in %, at some places k.

    Runs with a budget are known at their budget alone, so each of them is a point.
    """
    groups = curves.panels(cells, mix)
    named = enumerate(zip(groups, curves.panel_titles(groups), strict=True))
    kind = "cost-curve" if cells[0][0].unit == measure.COST else "curve"
    return [_chart(f"{kind}-{place}", group, title) for place, (group, title) in named]


def render(chart: Chart) -> Html:
    """The place where the script draws, and the numbers for everyone else."""
    return element(
        "section",
        element("h3", chart.title),
        element("noscript", "Curves need scripts, which this browser does not run; the numbers are below."),
        element("div", class_="chart", data_chart=chart.name),
        element("details", element("summary", "The same in numbers"), tables.render(chart.table)),
    )


def _chart(name: str, group: Sequence[Measured], title: str) -> Chart:
    info, called = group[0][0], curves.names([info for info, _ in group])
    free = [(info, facts) for info, facts in group if info.budget is None]
    least = max([1.0, *(float(info.budget) for info, _ in group if info.budget is not None)])
    lines = {called[info.key]: (info.attack, measure.changes(facts, info.unit)) for info, facts in free}
    found = {label: l0 for label, (_, l0) in lines.items()}
    end, view = (how([*found.values()], least) for how in (window.last, window.sensible_end))
    best = curves.best_of_all(free)
    points = [_point(cell, f"{called[cell[0].key]} at k") for cell in group if cell[0].budget is not None]
    ks = np.union1d(places([*found.values()], end, view), [float(point["k"]) for point in points])
    series: list[dict[str, Any]] = [
        {"label": label, **colours.pair(attack), "dash": colours.dash(attack), **rates(l0, ks)}
        for label, (attack, l0) in lines.items()
    ]
    if best is not None:
        series.append({"label": best[0], "dash": [2, 3], "rate": rates(best[1], ks)["rate"]})
    between = curves.truth_between(group)
    series += [] if between is None else [_gap(*between, ks)]
    by_cost = info.unit == measure.COST
    title = f"{title}, by cost" if by_cost else title
    title = f"{title}, {curves.counted(group)}"
    data = {
        "title": title,
        "axis": measure.axis(info.unit),
        "word": measure.word(info.unit),
        "end": end,
        "view": view,
        "cut": window.said(window.cut(found, view), view, measure.word(info.unit)),
        "leader": window.leader(found, view),
        "ks": ks.tolist(),
        "series": series,
        "points": points,
    }
    found |= {} if best is None else {best[0]: best[1]}
    found |= {} if between is None else {curves.PROVED: between[1]}
    counted = "for at most so much" if by_cost else f"with at most so many {info.unit}s changed"
    caption = f"{title}: share fooled in % {counted}, and its 95 % interval"
    listed = {0.0, *measure.fitting(group), *(() if by_cost else LISTED)}
    return Chart(name, title, data, in_numbers(f"{name}-table", caption, found, points, [k for k in listed if k < end]))


def places(found: Sequence[Any], end: float, view: float | None = None) -> Any:
    """Where to give the rates: at jumps and evenly between them, as far as there is room, and where the view ends."""
    ends = [0.0, end, end if view is None else view]
    jumps = np.unique(np.concatenate([ends, *(l0[np.isfinite(l0)] for l0 in found)]))
    even = np.unique(np.linspace(0, np.floor(end), POINTS // 2).round())
    if len(jumps) > POINTS:
        jumps = np.concatenate([ends, np.geomspace(1, np.floor(end), POINTS // 2).round()])
    return np.union1d(jumps, even)


def rates(l0: Any, ks: Any) -> dict[str, list[float]]:
    """The success rate at each k and the ends of its interval, in percent."""
    jumps, *values = curves.band(l0)
    at = np.searchsorted(jumps, ks, side="right") - 1
    names = ("rate", "low", "high")
    return {name: np.round(each[at], 3).tolist() for name, each in zip(names, values, strict=True)}


def _gap(found: Any, least: Any, ks: Any) -> dict[str, Any]:
    """What may fall at most, by what is proved; the gap down to what is fooled is drawn as a band."""
    fooled, most = (rates(each, ks)["rate"] for each in (found, least))
    look = {"light": style.GAP, "dark": colours.lightened(style.GAP), "dash": [8, 3, 2, 3]}
    return {"label": curves.PROVED, **look, "rate": most, "low": fooled, "high": most, "proved": True}


def _point(cell: Measured, label: str) -> dict[str, Any]:
    info, facts = cell
    rate, low, high = _interval(measure.changes(facts, info.unit), float(info.budget or 0))
    return {"label": label, "k": info.budget, **colours.pair(info.attack), "rate": rate, "low": low, "high": high}


def _interval(l0: Any, k: float) -> tuple[float, float, float]:
    rate = metrics.asr(l0, k)
    low, high = wilson(round(rate * len(l0)), len(l0))
    return round(100 * rate, 3), round(100 * low, 3), round(100 * high, 3)


def in_numbers(
    name: str, caption: str, found: dict[str, Any], points: Sequence[dict[str, Any]], listed: Sequence[float]
) -> HtmlTable:
    """The same as a table: rates at these k and at the budgets of the points."""
    budgets = {float(point["k"]) for point in points}
    ks = sorted(budgets | {float(k) for k in listed if found}) + ([math.inf] if found else [])
    rows = [[HtmlCell(label), *(_share(*_interval(l0, k)) for k in ks)] for label, l0 in found.items()]
    for label in dict.fromkeys(point["label"] for point in points):
        known = {float(p["k"]): _share(p["rate"], p["low"], p["high"]) for p in points if p["label"] == label}
        rows.append([HtmlCell(label), *(known.get(k, HtmlCell("–")) for k in ks)])
    return HtmlTable(name, caption, ["attack", *("∞" if math.isinf(k) else f"{k:g}" for k in ks)], rows)


def _share(rate: float, low: float, high: float) -> HtmlCell:
    return HtmlCell(f"{rate:.1f} ({number(low, 1)}–{number(high, 1)})", rate)
