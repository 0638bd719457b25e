"""One picture of a run: clean, adversarial and changed pixels of some samples, and the robustness curve.

The curve has the colour that the attack has everywhere; purple and orange stay apart for colour-blind readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sigmazero.core.files import replacing
from sigmazero.core.messages import class_name
from sigmazero.core.result import Result
from sigmazero.report.figures import style
from sigmazero.report.figures.images import is_image, largest_change, pixels
from sigmazero.report.optimality import curve


def choose(result: Result, count: int) -> list[int]:
    """At most `count` rows from the easiest to the hardest, evenly spread; unchanged ones only if there are no others.

    Rows that could not be fooled have infinitely many changes, so they come last.
    """
    order = result.changes.double().argsort(stable=True)
    changed = order[result.changes[order] > 0]
    pool = changed if len(changed) else order
    places = torch.linspace(0, len(pool) - 1, min(count, len(pool)), device="cpu").round().long()
    return [int(row) for row in pool[places.to(pool.device)]]


def save_picture(path: Path, result: Result, clean: Tensor, labels: Tensor, **how: Any) -> None:
    """Draw and write a PNG; `clean` are the attacked images in [0, 1], `labels` their true classes; see `draw`."""
    figure = draw(result, clean, labels, **how)
    with replacing(path) as part:
        figure.savefig(part, format="png", dpi=100)


def draw(
    result: Result,
    clean: Tensor,
    labels: Tensor,
    *,
    title: str = "",
    count: int = 8,
    attack: str | None = None,
    classes: Sequence[str] | None = None,
) -> Any:
    """The picture as a matplotlib figure; inputs that are not images give the curve alone.

    `attack` names the attack, for its colour, unless the title begins with it; `classes` are the names of the classes.
    """
    rows = choose(result, count) if is_image(clean) else []
    figure = style.figure(1.25 * len(rows) + 4.2, 4.4)
    figure.suptitle(title)
    grid = figure.add_gridspec(3, len(rows) + 1, width_ratios=[1.0] * len(rows) + [3.2])
    for column, row in enumerate(rows):
        axes = [figure.add_subplot(grid[line, column]) for line in range(3)]
        names = [class_name(classes, int(each[row])) for each in (labels, result.prediction)]
        _sample(axes, result, row, clean[row].cpu(), names, first=column == 0)
    colour = style.colour(attack) if attack else style.known_colour(title) or style.NEUTRAL
    _curve(figure.add_subplot(grid[:, -1]), result, colour)
    if rows:
        style.change_key(figure)
    return figure


def _sample(axes: list[Any], result: Result, row: int, clean: Tensor, names: list[str], *, first: bool) -> None:
    adversarial = result.x_adv[row].cpu()
    for axis, image in zip(axes, (clean, adversarial), strict=False):
        axis.imshow(pixels(image), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes[2].imshow(largest_change(clean, adversarial), cmap="PuOr_r", vmin=-1, vmax=1, interpolation="nearest")
    beyond = "" if result.success[row] else ",\nbeyond the budget"
    above = [f"class {names[0]}", f"→ {names[1]}", f"{float(result.changes[row]):g} changed{beyond}"]
    for axis, text in zip(axes, above if result.found[row] else [above[0], "not found", "∞"], strict=True):
        axis.set_title(style.plain(text), fontsize=8, pad=2)
        axis.set_xticks([])
        axis.set_yticks([])
    for axis, text in zip(axes if first else [], ("clean", "adversarial", "changes"), strict=False):
        axis.set_ylabel(text, fontsize=9)


def _curve(axis: Any, result: Result, colour: str) -> None:
    """Share of all samples fooled with at most k changes, over k."""
    ks, rates = curve(result.samples().changes) if len(result) else (np.zeros(1), np.zeros(1))
    end = max(1.0, 1.05 * float(ks[-1]))
    axis.step([*ks, end], 100 * np.append(rates, rates[-1]), where="post", color=colour, linewidth=2)
    # With a budget a sample ends at the first point within it, so that the median says nothing.
    name, value = ("median", result.median_l0) if result.budget is None else ("budget", float(result.budget))
    if np.isfinite(value):
        axis.axvline(value, color=style.NEUTRAL, linestyle="--", linewidth=1.2, label=f"{name} {value:g}")
        axis.legend(loc="lower right", frameon=False)
    axis.set(xlim=(0, end), ylim=(0, 101), title=f"robustness curve, n = {len(result)}")
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_xlabel(f"k, {'pixels' if result.unit == 'pixel' else 'features'} changed at most")
    axis.set_ylabel("attack success rate, %")
    style.tidy(axis)
