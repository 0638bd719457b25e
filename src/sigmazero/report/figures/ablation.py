"""What the components and the hyper-parameters of sigma-zero do: a table, heat maps and curves.

The plans experiments/ablation-*.toml fill a store for it. Cells belong together if they differ in nothing but the
parameters in question, so one store may hold all three plans.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from sigmazero.core.metrics import DEFAULT_KS
from sigmazero.report.figures import style
from sigmazero.report.figures.figure import Figure, Request
from sigmazero.report.measure import Measured
from sigmazero.report.paper import published
from sigmazero.report.tables.formats import ENDINGS, as_text
from sigmazero.report.tables.layout import Column, Layout, Line, comparable, in_blocks, lay_out, rated, words
from sigmazero.report.tables.text import number
from sigmazero.store.facts import CellInfo

COMPONENTS = tuple(published.COMPONENTS)
SURFACE = ("smoothing", "threshold")
RATE = ("threshold_rate",)
PLANS = {
    COMPONENTS: "experiments/ablation-components.toml",
    SURFACE: "experiments/ablation-smoothing-threshold.toml",
    RATE: "experiments/ablation-threshold-rate.toml",
}


def families(cells: Sequence[Measured], names: tuple[str, ...]) -> list[list[Measured]]:
    """Groups of runs without a budget whose only difference is in these parameters."""
    groups: dict[str, list[Measured]] = {}
    for info, facts in cells:
        if info.budget is None and set(names) <= set(info.parameters):
            groups.setdefault(_rest(info, names), []).append((info, facts))
    enough = (lambda found: all(len(found[n]) > 1 for n in names)) if names == SURFACE else _any_differs
    return [group for group in groups.values() if enough({n: {i.parameters[n] for i, _ in group} for n in names})]


def _any_differs(found: dict[str, set[Any]]) -> bool:
    return any(len(values) > 1 for values in found.values())


def _rest(info: CellInfo, names: tuple[str, ...]) -> str:
    """Everything that determines a cell's answer, except these parameters."""
    left = ("key", "identity", "attack", "origin", "provenance", "parameters")
    about = {k: v for k, v in asdict(info).items() if k not in left}
    others = {name: value for name, value in info.parameters.items() if name not in names}
    return json.dumps([about, info.origin.get("target"), others], sort_keys=True)


def _required(cells: Sequence[Measured], *kinds: tuple[str, ...]) -> list[list[list[Measured]]]:
    """The families of each kind; if there is none of any kind, an error says which plan to run."""
    found = [families(cells, names) for names in kinds]
    if not any(found):
        wanted = " or ".join(f"{' × '.join(names)} ({PLANS[names]})" for names in kinds)
        held = [names for names in PLANS if names not in kinds and families(cells, names)]
        table, drawn = "a name ending in .md, .csv or .tex", "a name ending in .pdf, .svg or .png"
        hint = f"; for what it has, give {table if COMPONENTS in held else drawn}" if held else ""
        raise ValueError(f"the store has no runs that differ in {wanted} alone: run such a plan into it first{hint}")
    return found


def components(cells: Sequence[Measured], ks: Sequence[float] = DEFAULT_KS, mix: bool = False) -> Layout:
    """The table of components: which were on, the success rates and the median; the most effective first."""
    (groups,) = _required(cells, COMPONENTS)
    chosen = [cell for group in groups for cell in group]
    asked = sorted({float(k) for k in ks})
    figures = rated(chosen, asked, mix)
    columns = comparable([*asked, math.inf])
    lines = [
        Line(info, words(info, len(facts)) | switches(info), {c.name: figures[info.key][c.name] for c in columns})
        for info, facts in chosen
    ]
    blocks = [sorted(block, key=lambda line: _strength(line, columns)) for block in in_blocks(lines)]
    return lay_out("Components of sigma-zero", columns, ("model", *COMPONENTS), blocks)


def switches(info: CellInfo) -> dict[str, str]:
    """Which components a cell had, in words."""
    return {name: "yes" if info.parameters[name] else "no" for name in COMPONENTS}


def _strength(line: Line, columns: Sequence[Column]) -> tuple[float, ...]:
    shares = [line.figures[column.name] or 0.0 for column in columns if column.k is not None]
    return (line.figures["median_l0"] or 0.0, *(-share for share in shares))


def draw_ablation(cells: Sequence[Measured], ks: Sequence[float] = DEFAULT_KS, mix: bool = False) -> Any:
    """One row per model: heat maps over smoothing × threshold, or curves over threshold_rate; one panel per metric."""
    surfaces, lines = _required(cells, SURFACE, RATE)
    metrics = comparable(sorted({float(k) for k in ks}))
    kinds: list[tuple[list[Measured], Callable[..., None]]] = [(group, _heat_map) for group in surfaces]
    kinds += [(group, _rate_curve) for group in lines]
    figure = style.figure(3.8 * len(metrics), 3.2 * len(kinds))
    for row, (group, draw) in enumerate(kinds):
        figures = rated(group, ks, mix)
        info = group[0][0]
        for place, metric in enumerate(metrics):
            axis = figure.add_subplot(len(kinds), len(metrics), row * len(metrics) + place + 1)
            draw(figure, axis, group, {key: _value(found, metric) for key, found in figures.items()}, metric)
            heading = f"{metric.heading}, %" if metric.kind == "share" else metric.title
            axis.set_title(style.plain(f"{info.model} on {info.dataset}: {heading}"), fontsize=9)
    return figure


def _value(figures: dict[str, float | None], metric: Column) -> float:
    value = figures[metric.name]
    assert value is not None  # only runs with a budget lack figures
    return 100 * value if metric.kind == "share" else value


def surface(group: Sequence[Measured], values: dict[str, float]) -> tuple[list[float], list[float], Any]:
    """Smoothings, thresholds, and the value of each pair: NaN where it was not run."""
    rows, columns = (sorted({float(info.parameters[name]) for info, _ in group}) for name in SURFACE)
    table = np.full((len(rows), len(columns)), np.nan)
    for info, _ in group:
        place = (rows.index(info.parameters["smoothing"]), columns.index(info.parameters["threshold"]))
        table[place] = values[info.key]
    return rows, columns, table


def _heat_map(figure: Any, axis: Any, group: Sequence[Measured], values: dict[str, float], metric: Column) -> None:
    rows, columns, table = surface(group, values)
    seen = np.ma.masked_invalid(table)
    # Yellow is good in all of them: many fooled, or few changes.
    image = axis.imshow(seen, cmap="cividis" if metric.better > 0 else "cividis_r", aspect="auto", origin="lower")
    if seen.count():
        figure.colorbar(image, ax=axis)
    middle = (seen.min() + seen.max()) / 2 if seen.count() else 0.0
    for (row, column), value in np.ndenumerate(table):
        light = np.isfinite(value) and (value - middle) * metric.better > 0
        colour = "black" if light or not np.isfinite(value) else "white"
        axis.text(column, row, number(float(value), 1), ha="center", va="center", fontsize=7, color=colour)
    axis.set_xticks(range(len(columns)), [f"{value:g}" for value in columns])
    axis.set_yticks(range(len(rows)), [f"{value:g}" for value in rows])
    axis.set(xlabel="threshold τ0", ylabel="smoothing σ")


def _rate_curve(figure: Any, axis: Any, group: Sequence[Measured], values: dict[str, float], metric: Column) -> None:
    del figure, metric
    points = sorted((float(info.parameters["threshold_rate"]), values[info.key]) for info, _ in group)
    rates, found = zip(*points, strict=True)
    colour = style.colour("sigma-zero")
    axis.plot(rates, np.ma.masked_invalid(found), "o-", color=colour, linewidth=1.6)
    top = 1.1 * max([1.0, *(value for value in found if math.isfinite(value))])
    for rate, value in points:
        if math.isinf(value):
            axis.text(rate, top, "∞", ha="center", va="top", color=colour)
    axis.set(xscale="symlog" if min(rates) <= 0 else "log", xlabel="threshold rate t", ylim=(0, top))
    style.tidy(axis)


def _draw(request: Request) -> Any:
    """The table of components or the heat maps and curves, as the file's name asks."""
    ending = request.path.suffix.lower()
    if ending not in ENDINGS:
        return draw_ablation(request.cells, request.ks, request.mix)
    made = components(request.cells, request.ks, request.mix)
    made = made if request.compare is None else request.compare(made)
    return as_text(made, ENDINGS[ending], standalone=request.standalone)


FIGURE = Figure(
    "ablation",
    "Components as .md, .csv or .tex; heat maps and curves of sigma-zero's numbers as .pdf, .svg or .png.",
    _draw,
    formats=(*(ending.removeprefix(".") for ending in ENDINGS), *style.FORMATS),
)
