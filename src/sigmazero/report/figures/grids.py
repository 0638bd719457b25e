"""Draw what samples have in common: confusion, agreement and transfer as grids, changed pixels or features as maps."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sigmazero.report import analysis, spaces
from sigmazero.report.analysis import Grid
from sigmazero.report.figures import style
from sigmazero.report.figures.figure import Request, figure
from sigmazero.report.runs import Group

MAX_FEATURES = 12  # bars of a table


@figure("confusion", "Which class the examples of each class are taken for, per model; as .pdf, .svg or .png.")
def draw_confusion(request: Request) -> Any:
    """Draw a grid per model, by its strongest attack."""
    panels = [
        (f"{group.title}, {group.strongest.name}", analysis.confusion(group.strongest)) for group in request.groups
    ]
    return _grids(panels, "taken for", "true class", "In % of the examples found of a true class.")


@figure("agreement", "Which attack needs fewer changes than which, per model; as .pdf, .svg or .png.")
def draw_agreement(request: Request) -> Any:
    """Draw a grid per model with two attacks or more."""
    panels = [(group.title, analysis.wins(group)) for group in request.groups if len(group.free) > 1]
    if not panels:
        raise ValueError("no model in the store has two runs without a budget; there is nothing to compare")
    return _grids(panels, "than", "needs fewer changes", "In % of the samples that all attacks have.")


@figure("transfer", "Which examples fool other models too; run sigmazero transfer STORE first. As .pdf, .svg or .png.")
def draw_transfer(request: Request) -> Any:
    """Draw a grid per data set."""
    grids = analysis.transfer(request.store, [run for group in request.groups for run in group.runs])
    if not grids:
        raise ValueError("the store does not know whether examples fool other models; ask the models first")
    note = "In % of the samples that fool the model in the row and that the model in the column classifies correctly."
    return _grids([(grid.title, grid) for grid in grids], "also fools", "found on", note)


def _grids(panels: Sequence[tuple[str, Grid]], across: str, down: str, note: str) -> Any:
    """Shade each grid by its shares, with the numbers in it."""
    sides = [max(3.2, 0.48 * len(grid.rows) + 1.8) for _, grid in panels]
    drawn = style.figure(sum(sides), max(sides))
    axes = drawn.subplots(1, len(panels), squeeze=False, width_ratios=sides)[0]
    for axis, (title, grid) in zip(axes, panels, strict=True):
        axis.imshow(100 * grid.shares, cmap="Blues", vmin=0, vmax=100)
        for (row, column), share in np.ndenumerate(grid.shares):
            text, colour = "" if np.isnan(share) else f"{100 * share:.0f}", "white" if share > 0.55 else "#222222"
            axis.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
        axis.set_xticks(range(len(grid.columns)), map(style.plain, grid.columns), rotation=45, ha="right", fontsize=8)
        axis.set_yticks(range(len(grid.rows)), map(style.plain, grid.rows), fontsize=8)
        axis.tick_params(length=0)
        axis.set(xlabel=across, ylabel=down)
        axis.set_title(style.plain(title), fontsize=9)
    drawn.supxlabel(note, fontsize=7, color="#555555")
    return drawn


@figure("heat", "Which pixels or features are changed, per attack; as .pdf, .svg or .png.")
def draw_heat(request: Request) -> Any:
    """Draw a row of panels per model, one per attack: maps of images, bars of tables."""
    shaped = [
        g
        for g in request.groups
        if analysis.is_picture(g.info) or ("shape" in g.info.about and spaces.is_table(g.info))
    ]
    if not shaped:
        raise ValueError("the store does not say what shape its inputs have, or they are neither images nor tables")
    across = max(len(group.runs) for group in shaped)
    drawn = style.figure(2.1 * across + 0.8, 2.4 * len(shaped))
    for part, group in zip(drawn.subfigures(len(shaped), 1, squeeze=False)[:, 0], shaped, strict=True):
        part.suptitle(style.plain(group.title), fontsize=10)
        axes = part.subplots(1, across, squeeze=False)[0]
        _maps(part, axes[: len(group.runs)], group)
        for axis in axes[len(group.runs) :]:
            axis.axis("off")
    return drawn


def _maps(part: Any, axes: Any, group: Group) -> None:
    from matplotlib.colors import PowerNorm

    maps = [analysis.changed_pixels(run) for run in group.runs]
    top = max([0.01, *(float(each.max()) for each in maps if each is not None)])
    scale = PowerNorm(0.5, 0, 100 * top)  # by the root, so that attacks with few changes are seen too
    for axis, run, share in zip(axes, group.runs, maps, strict=True):
        axis.set_title(style.plain(run.title), fontsize=8)
        if share is None:
            shares, names = analysis.changed_sites(run), [site.name for site in spaces.named_sites(run.info)]
            order = np.argsort(-shares, kind="stable")[:MAX_FEATURES][::-1]
            axis.barh([style.plain(names[k]) for k in order], 100 * shares[order], color=style.colour(run.info.attack))
            axis.set_xlabel("changed in % of the examples", fontsize=7)
            axis.tick_params(labelsize=7)
            continue
        image = axis.imshow(100 * share, cmap="magma", norm=scale, interpolation="nearest")
        axis.set(xticks=[], yticks=[])
        if run is group.runs[-1]:
            bar = part.colorbar(image, ax=list(axes), shrink=0.8)
            bar.set_label("changed in % of the examples", fontsize=7)
