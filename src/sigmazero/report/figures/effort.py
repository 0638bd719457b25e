"""Success against queries: what share of all samples is fooled after so many questions, a panel per model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sigmazero.report import patterns
from sigmazero.report.figures import style, window
from sigmazero.report.figures.curves import counted, names, panel_titles, panels
from sigmazero.report.figures.figure import Figure
from sigmazero.report.measure import Measured
from sigmazero.report.optimality import curve

NOTE = "Queries (forward and backward) until the reported example was found, as if all steps of a search cost the same."


def called(group: Sequence[Measured]) -> dict[str, str]:
    """What to call each run of a panel, its budget included."""
    named = names([info for info, _ in group])
    return {info.key: named[info.key] + ("" if info.budget is None else f" within {info.budget}") for info, _ in group}


def draw_effort(cells: Sequence[Measured], *, mix: bool = False) -> Any:
    """Per model, the share of all samples whose example was found within q queries, over q."""
    groups = panels(cells, mix)
    figure, axes = style.grid(len(groups))
    for axis, group, title in zip(axes, groups, panel_titles(groups), strict=True):
        spent = {info.key: patterns.effort(info, facts) for info, facts in group}
        end, words = window.last([*spent.values()]), called(group)
        for info, _ in group:
            alike = [other.budget for other, _ in group if other.attack == info.attack]
            dash = style.dash(info.attack) if info.budget is None else style.DASHES[alike.index(info.budget) % 4]
            at, rates = curve(spent[info.key])
            line = np.append(at, end), 100 * np.append(rates, rates[-1])
            look = {"color": style.colour(info.attack), "linestyle": dash, "linewidth": 1.6}
            axis.step(*line, where="post", label=style.plain(words[info.key]), **look)
        axis.set_xscale("symlog", linthresh=10, linscale=0.3)
        axis.xaxis.set_major_formatter("{x:g}")
        axis.set(xlim=(0, end), ylim=(0, 101), xlabel="queries per sample at most", ylabel="fooled, %")
        axis.set_title(style.plain(f"{title}, {counted(group)}"), fontsize=11)
        style.legend(axis)
        style.tidy(axis)
    figure.supxlabel(NOTE, fontsize=7, color="#555555")
    return figure


FIGURE = Figure(
    "effort",
    "Success against queries per model, as .pdf, .svg or .png.",
    lambda request: draw_effort(request.cells, mix=request.mix),
)
