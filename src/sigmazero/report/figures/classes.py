"""From which class to which: where the examples of the strongest attack lead, a panel per model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sigmazero.core.messages import class_name
from sigmazero.report import measure, patterns
from sigmazero.report.figures import matrix, style, window
from sigmazero.report.figures.curves import names, panel_titles, panels
from sigmazero.report.figures.figure import Figure
from sigmazero.report.measure import Measured

MOST = 20  # classes; more would not be read


def strongest(group: Sequence[Measured]) -> Measured:
    """The run with the lowest median, then that with the highest curve; of runs with budgets that with the largest."""
    free = {info.key: (info, facts) for info, facts in group if info.budget is None}
    if not free:
        return max(group, key=lambda cell: (cell[0].budget or 0, int(cell[1].success.sum())))
    found = {key: measure.changes(facts, info.unit) for key, (info, facts) in free.items()}
    first = window.leader(found, window.sensible_end([*found.values()]))
    return free[first or next(iter(free))]


def told(cell: Measured) -> tuple[list[str], Any, int]:
    """The names of the classes, from which to which in shares of each row, and how many classes were left out."""
    info, facts = cell
    classes, counts = patterns.confusion(facts)
    order = np.argsort(-(counts.sum(0) + counts.sum(1)), kind="stable")[:MOST]
    kept = np.sort(order)
    some = counts[np.ix_(kept, kept)].astype(float)
    shares = some / np.maximum(counts.sum(1)[kept][:, None], 1)
    return [class_name(info.about.get("classes"), classes[k]) for k in kept], shares, len(classes) - len(kept)


def draw_classes(cells: Sequence[Measured], *, mix: bool = False) -> Any:
    """Per model, the share of a class's examples that lead to each other class, by the strongest attack."""
    groups = panels(cells, mix)
    chosen = [strongest(group) for group in groups]
    held = [told(cell) for cell in chosen]
    sizes = [matrix.size(len(names_), len(names_), max(map(len, names_), default=1)) for names_, *_ in held]
    figure = style.figure(sum(width for width, _ in sizes), max(height for _, height in sizes) + 0.6)
    axes = figure.subplots(1, len(groups), squeeze=False, width_ratios=[width for width, _ in sizes])[0]
    for axis, group, cell, (called, shares, out), title in zip(
        axes, groups, chosen, held, panel_titles(groups), strict=True
    ):
        texts = [[f"{100 * share:.0f}" if share else "" for share in row] for row in shares]
        matrix.fill(axis, shares, texts, (called, called))
        attack = names([info for info, _ in group])[cell[0].key]
        left = f", {out} rarer classes left out" if out else ""
        axis.set_title(style.plain(f"{title}, {attack}{left}"), fontsize=9)
        axis.set(xlabel="taken for", ylabel="true class")
    figure.supxlabel("In % of the examples found of a true class.", fontsize=7, color="#555555")
    return figure


FIGURE = Figure(
    "confusion",
    "From which class to which examples lead, per model; as .pdf, .svg or .png.",
    lambda request: draw_classes(request.cells, mix=request.mix),
)
