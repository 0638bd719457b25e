"""How far attacks find the same: which features they share, and who needs fewer changes, a pair of panels per model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from sigmazero.report import patterns
from sigmazero.report.figures import matrix, style
from sigmazero.report.figures.curves import names, panel_titles, panels
from sigmazero.report.figures.figure import Figure, Request
from sigmazero.report.measure import Measured
from sigmazero.store.store import Store

LEFT, RIGHT = "changed features in common, %", "row needs fewer changes than column, %"
NOTE = "In common: of the features that either of two attacks changed, over the samples that both fooled."


def pairs(store: Store, group: Sequence[Measured]) -> tuple[list[str], Any, Any]:
    """The names of the runs without a budget, what each two have in common, and how often the first needs fewer."""
    free = [(info, store.facts(info.key)) for info, _ in group if info.budget is None]
    named = names([info for info, _ in group])
    overlap, fewer = np.full((2, len(free), len(free)), np.nan)
    for row, column in combinations(range(len(free)), 2):
        found = patterns.agreement(free[row], free[column])
        overlap[row, column] = overlap[column, row] = found.overlap
        fewer[row, column], fewer[column, row] = found.fewer, found.more
    return [named[info.key] for info, _ in free], overlap, fewer


def draw_agreement(request: Request) -> Any:
    """Two grids per model with two attacks or more."""
    groups = panels(request.cells, request.mix)
    titles = panel_titles(groups)
    held = [(title, *pairs(request.store, group)) for group, title in zip(groups, titles, strict=True)]
    held = [one for one in held if len(one[1]) > 1]
    if not held:
        raise ValueError("no model in the store has two runs without a budget; there is nothing to compare")
    width, height = np.max([matrix.size(len(one[1]), len(one[1]), max(map(len, one[1]))) for one in held], axis=0)
    figure = style.figure(2 * width, (height + 0.4) * len(held))
    axes = figure.subplots(len(held), 2, squeeze=False)
    for line, (title, called, *grids) in zip(axes, held, strict=True):
        for axis, grid, what in zip(line, grids, (LEFT, RIGHT), strict=True):
            texts = [["" if np.isnan(share) else f"{100 * share:.0f}" for share in row] for row in grid]
            matrix.fill(axis, np.asarray(grid), texts, (called, called))
            axis.set_title(style.plain(f"{title}: {what}"), fontsize=8)
    figure.supxlabel(NOTE, fontsize=7, color="#555555")
    return figure


FIGURE = Figure("agreement", "What attacks have in common, per model; as .pdf, .svg or .png.", draw_agreement)
