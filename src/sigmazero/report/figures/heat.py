"""Which pixels or features fall: in how many of the examples found each is changed, per model and attack."""

from __future__ import annotations

from typing import Any

import numpy as np

from sigmazero.report import patterns, spaces
from sigmazero.report.figures import style
from sigmazero.report.figures.curves import names, panel_titles, panels
from sigmazero.report.figures.figure import Figure, Request
from sigmazero.report.measure import Measured
from sigmazero.store.store import Store

MOST = 12  # features of a table


def draw_heat(request: Request) -> Any:
    """A row of panels per model, one per attack: maps of images, bars of tables."""
    groups = panels(request.cells, request.mix)
    shaped = [(group, title) for group, title in zip(groups, panel_titles(groups), strict=True) if _can(group[0])]
    if not shaped:
        raise ValueError("the store does not say what shape its inputs have, or they are neither images nor tables")
    across = max(len(group) for group, _ in shaped)
    figure = style.figure(2.1 * across + 0.8, 2.3 * len(shaped) + 0.3)
    parts = figure.subfigures(len(shaped), 1, squeeze=False)[:, 0]
    for part, (group, title) in zip(parts, shaped, strict=True):
        part.suptitle(style.plain(title), fontsize=10)
        _row(part, request.store, group, across)
    return figure


def _can(cell: Measured) -> bool:
    info = cell[0]
    shape = info.about.get("shape")
    return shape is not None and (spaces.is_table(info) or (len(shape) == 3 and shape[0] in (1, 3)))


def _row(part: Any, store: Store, group: list[Measured], across: int) -> None:
    from matplotlib.colors import PowerNorm

    called = names([info for info, _ in group])
    axes = part.subplots(1, across, squeeze=False)[0]
    table = spaces.is_table(group[0][0])
    measured = [(patterns.fallen if table else patterns.heat)(info, store.facts(info.key)) for info, _ in group]
    shares = [share for share in measured if share is not None]
    top = max([float(share.max()) for share in shares] + [0.01])
    scale, drawn = PowerNorm(0.5, 0, 100 * top), None  # by the root, so that attacks with few changes are seen too
    for axis, (info, _), share in zip(axes, group, shares, strict=False):
        name = called[info.key] + ("" if info.budget is None else f" at {info.budget}")
        axis.set_title(style.plain(name), fontsize=8)
        if table:
            _bars(axis, [site.name for site in spaces.named_sites(info)], share, style.colour(info.attack))
        else:
            drawn = axis.imshow(100 * share, cmap="magma", norm=scale, interpolation="nearest")
            axis.set(xticks=[], yticks=[])
    for axis in axes[len(group) :]:
        axis.axis("off")
    if drawn is not None:
        bar = part.colorbar(drawn, ax=list(axes), shrink=0.8)
        bar.set_label("changed in % of the examples", fontsize=7)
        bar.ax.tick_params(labelsize=7)


def _bars(axis: Any, called: list[str], share: Any, colour: str) -> None:
    order = np.argsort(-share, kind="stable")[:MOST][::-1]
    axis.barh([style.plain(called[k]) for k in order], 100 * share[order], color=colour)
    axis.set_xlabel("changed in % of the examples", fontsize=7)
    axis.tick_params(labelsize=7)
    style.tidy(axis)


FIGURE = Figure("heat", "Which pixels or features are changed, per attack; as .pdf, .svg or .png.", draw_heat)
