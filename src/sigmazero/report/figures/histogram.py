"""How many changes samples need, as bars: a line of bars per attack, a panel per model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sigmazero.report import measure, patterns
from sigmazero.report.figures import style, window
from sigmazero.report.figures.curves import counted, names, panel_titles, panels
from sigmazero.report.figures.figure import Figure
from sigmazero.report.measure import Measured

WIDTH, EACH, AROUND = 4.6, 0.75, 1.1  # inches: a panel, an attack, and what is above and below


def draw_histogram(cells: Sequence[Measured], *, mix: bool = False) -> Any:
    """Per model and attack, how many samples need how many changes; beyond the axis and never are said in numbers."""
    free = [cell for cell in cells if cell[0].budget is None]
    if cells and not free:
        raise ValueError(
            "every run in the store has a budget, so fewest changes were not looked for; curves show such runs"
        )
    groups = panels(free, mix)
    tall = max(map(len, groups))
    figure = style.figure(WIDTH * len(groups), EACH * tall + AROUND)
    axes = figure.subplots(tall, len(groups), squeeze=False, sharex="col")
    for column, group, title in zip(axes.T, groups, panel_titles(groups), strict=True):
        called = names([info for info, _ in group])
        found = {info.key: measure.changes(facts, info.unit) for info, facts in group}
        edges = patterns.bins([*found.values()], window.sensible_end([*found.values()]))
        for axis, (info, _) in zip(column, group, strict=False):
            _bars(axis, patterns.histogram(found[info.key], edges), edges, info.attack, called[info.key])
        for axis in column[len(group) :]:
            axis.axis("off")
        column[0].set_title(style.plain(f"{title}, {counted(group)}"), fontsize=11)
        last = column[len(group) - 1]
        last.set_xlabel(f"changed {group[0][0].unit}s needed" if group[0][0].unit != measure.COST else "cost needed")
        last.tick_params(labelbottom=True)
    return figure


def _bars(axis: Any, held: patterns.Histogram, edges: Any, attack: str, name: str) -> None:
    axis.bar(edges[:-1] - 0.5, held.counts, np.diff(edges), align="edge", color=style.colour(attack), linewidth=0)
    told = [(held.already, "wrong already"), (held.beyond, "beyond"), (held.never, "not fooled")]
    rest = ", ".join(f"{count} {what}" for count, what in told if count)
    axis.text(
        0.99,
        0.93,
        "\n".join(filter(None, [style.plain(name), rest])),
        transform=axis.transAxes,
        fontsize=7,
        bbox={"color": "white", "alpha": 0.75, "pad": 1},
        ha="right",
        va="top",
    )
    axis.set(xlim=(0, edges[-1]))
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.yaxis.get_major_locator().set_params(integer=True, nbins=3)
    axis.tick_params(labelsize=8)
    style.tidy(axis)


FIGURE = Figure(
    "histogram",
    "How many samples need how many changes, per attack; as .pdf, .svg or .png.",
    lambda request: draw_histogram(request.cells, mix=request.mix),
)
