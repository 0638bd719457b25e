"""Show images before and after an attack: of one result with its curve, and of several attacks side by side.

Purple and orange, which stay apart for colour-blind readers, mark values that fell and rose.
"""

import re
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sigmazero.core.messages import class_name
from sigmazero.core.metrics import Floats
from sigmazero.core.result import Result
from sigmazero.report.figures import style
from sigmazero.report.figures.curves import draw_result
from sigmazero.report.figures.figure import Option, Request, figure
from sigmazero.report.runs import Group, Run, places_of

ROWS = 6  # inputs side by side, unless the option says otherwise
ACROSS = 56  # a mark is at least the image's longer side divided by this
IMAGE = 1.15  # inches


def is_image(x: Tensor) -> bool:
    """Return whether a batch can be shown: (N, 1 or 3 channels, height, width)."""
    return x.ndim == 4 and x.shape[1] in (1, 3) and min(x.shape[2:]) > 1


def show(axis: Any, image: Tensor, text: str = "") -> None:
    """Show an image without ticks, with a text below it."""
    pixels = image[0] if len(image) == 1 else image.permute(1, 2, 0).clamp(0, 1)
    axis.imshow(pixels.numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axis.set(xticks=[], yticks=[])
    for side in axis.spines.values():
        side.set(linewidth=0.4, color="#888888")
    if text:
        axis.set_xlabel(text, fontsize=7, labelpad=2, linespacing=1.1)


def show_changes(axis: Any, clean: Tensor, adversarial: Tensor, text: str = "") -> None:
    """Show an image in light greys, with a square on each changed pixel in the colour of its largest change.

    Where marks would cover half of the image, the changes are shown as they are.
    """
    from matplotlib.collections import PolyCollection

    show(axis, 0.8 + 0.2 * clean.mean(0, keepdim=True), text)
    delta = adversarial - clean
    change = delta.gather(0, delta.abs().argmax(0, keepdim=True))[0].numpy()
    changed = (delta != 0).any(0).numpy()
    rows, columns = np.nonzero(changed)
    size = max(1.0, max(change.shape) / ACROSS)
    look: dict[str, Any] = {"cmap": "PuOr_r", "clim": (-1, 1)}
    if len(rows) * size**2 > change.size / 2:
        axis.imshow(np.ma.masked_array(change, ~changed), interpolation="nearest", **look)
    elif len(rows):
        corners = size / 2 * np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
        outlines = np.stack([columns, rows], 1)[:, None] + corners[None]
        marks = PolyCollection(outlines, array=change[rows, columns], edgecolors="#222222", linewidths=0.35, **look)
        axis.add_collection(marks, autolim=False)


def choose(result: Result, count: int) -> list[int]:
    """Return at most `count` rows from the easiest to the hardest; unchanged ones only if there are no others.

    Rows that could not be fooled have infinitely many changes, so they come last.
    """
    order = result.changes.double().argsort(stable=True)
    changed = order[result.changes[order] > 0]
    pool = changed if len(changed) else order
    places = torch.linspace(0, len(pool) - 1, min(count, len(pool)), device="cpu").round().long()
    return [int(row) for row in pool[places.to(pool.device)]]


def words(result: Result, row: int) -> tuple[str, str]:
    """Return what a row is taken for after the attack, and how many changes that took."""
    if not result.found[row]:
        return "not fooled", "∞"
    beyond = "" if result.success[row] else ", beyond the budget"
    return f"→ {result.class_name(int(result.prediction[row]))}", f"{float(result.changes[row]):g} changed{beyond}"


def show_sample(axes: Sequence[Any], result: Result, clean: Tensor, row: int, label: str) -> list[str]:
    """Show a sample before, after and what changed on three axes; return what to write there."""
    before, after = clean[row].cpu(), result.x_adv[row].cpu()
    became, changed = words(result, row)
    show(axes[0], before)
    show(axes[1], after)
    show_changes(axes[2], before, after)
    return [style.plain(f"class {label}"), style.plain(became), changed.replace(", ", ",\n")]


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
    """Return some samples before, after and what changed, beside the curve, as a matplotlib figure.

    Inputs that are not images give the curve alone. `attack` sets the colour of the curve; `classes` are names.
    """
    rows = choose(result, count) if is_image(clean) else []
    made = style.figure(1.25 * len(rows) + 4.2, 4.4)
    made.suptitle(style.plain(title))
    grid = made.add_gridspec(3, len(rows) + 1, width_ratios=[1.0] * len(rows) + [3.2])
    for column, row in enumerate(rows):
        axes = [made.add_subplot(grid[line, column]) for line in range(3)]
        texts = show_sample(axes, result, clean, row, class_name(classes, int(labels[row])))
        for axis, text in zip(axes, texts, strict=True):
            axis.set_title(text, fontsize=8, pad=2)
        for axis, text in zip(axes if column == 0 else [], ("clean", "adversarial", "changes"), strict=False):
            axis.set_ylabel(text, fontsize=9)
    axis = made.add_subplot(grid[:, -1])
    end = draw_result(axis, result, color=style.colour(attack) if attack else style.NEUTRAL)
    # With a budget a sample ends at the first point within it, so that the median says nothing.
    name, value = ("median", result.median_l0) if result.budget is None else ("budget", float(result.budget))
    if np.isfinite(value):
        axis.axvline(value, color=style.NEUTRAL, linestyle="--", linewidth=1.2, label=f"{name} {value:g}")
        axis.legend(loc="lower right", frameon=False)
    axis.set(xlim=(0, end), title=f"robustness curve, n = {len(result)}")
    if rows:
        style.change_key(made)
    return made


@figure(
    "pictures",
    "Some inputs clean, adversarial and with their changes marked, per attack; as .pdf, .svg or .png.",
    Option("rows", f"How many inputs; {ROWS} by default."),
)
def draw_pictures(request: Request) -> dict[str, Any]:
    """Draw one figure per group whose inputs are images; with several, names set their files apart."""
    rows = ROWS if request.options.get("rows") is None else request.options["rows"]
    if rows < 1:
        raise ValueError(f"rows={rows}: give 1 or more")
    inputs = {group: request.clean(group.info) for group in request.groups}
    found = [group for group in request.groups if is_image(inputs[group].images)]
    if not found:
        raise ValueError(f"{request.groups[0].info.dataset} has inputs that are not images; curves can be drawn of any")
    plain = [re.sub(r"[^\w.-]|_", "-", f"{group.info.model}-{group.info.dataset}") for group in found]
    names = [name if plain.count(name) == 1 else f"{name}-{place}" for place, name in enumerate(plain, 1)]
    made = [draw_group(group, inputs[group], rows) for group in found]
    return dict(zip(names, made, strict=True)) if len(made) > 1 else made[0]


def draw_group(group: Group, inputs: Any, count: int) -> Any:
    """Draw two lines per input: adversarial inputs with prediction and l0, and below them what was changed.

    The inputs are those that all attacks fooled, spread over the data set; inputs that fewer fooled follow.
    """
    common = group.runs[0].facts.row
    for run in group.runs:
        common = common[np.isin(common, run.facts.row)]
    if not len(common):
        raise ValueError(f"the attacks on {group.info.model} have no row in common yet; let the run go on")
    rows = common[_spread([_within(run)[run.places(common)] for run in group.runs], count)]
    clean = inputs.images[places_of(rows, inputs.ids.numpy())]
    across = 1 + len(group.runs)
    width, height = IMAGE * across + 0.3, 2.8 * IMAGE * len(rows) + 0.6
    made = style.figure(width, height)
    made.set_layout_engine("none")  # it is slow with many axes
    box = {"left": 0.02, "right": 0.98, "bottom": 0.2 / height, "top": 1 - 0.6 / height}
    grid = made.add_gridspec(2 * len(rows), across, **box, hspace=0.35, wspace=0.07)
    found = [run.perturbed.take(run.places(rows)) for run in group.runs]
    points = [facts.rebuild(clean) for facts in found]
    classes = group.info.about.get("classes")
    for row, number in enumerate(rows.tolist()):
        label, target = int(found[0].label[row]), int(found[0].target[row])
        goal = "" if target < 0 else f", to {class_name(classes, target)}"
        first = made.add_subplot(grid[2 * row, 0])
        show(first, clean[row], style.plain(f"class {class_name(classes, label)}{goal}\nrow {number}"))
        if row == 0:
            first.set_title("clean", fontsize=7.5, fontweight="bold", pad=3)
        for column, (run, facts, adversarial) in enumerate(zip(group.runs, found, points, strict=True), 1):
            axes = [made.add_subplot(grid[2 * row + line, column]) for line in range(2)]
            if facts.success[row]:
                became, l0 = class_name(classes, int(facts.prediction[row])), run.changes[run.places(rows)][row]
                show(axes[0], adversarial[row], style.plain(f"→ {became}   l0 {l0:g}"))
                show_changes(axes[1], clean[row], adversarial[row])
            else:
                show(axes[0], 0.8 + 0.2 * clean[row].mean(0, keepdim=True), "not found")
                show_changes(axes[1], clean[row], clean[row])
            if row == 0:
                name = run.name if run.budget is None else f"{run.name} at {run.budget}"
                look: dict[str, Any] = {"fontsize": 7.5, "color": style.colour(run.info.attack), "pad": 3}
                axes[0].set_title(style.plain(textwrap.fill(name, 18)), fontweight="bold", **look)
    counted = "pixels" if group.unit == "pixel" else "features"
    text = textwrap.fill(f"{group.title}; l0 counts {counted}", int(13 * width))
    made.text(0.02, 1 - 0.08 / height, style.plain(text), fontsize=8, va="top")
    style.change_key(made, "upper right")
    return made


def _within(run: Run) -> Floats:
    """Return the changes of each sample, infinite where they are more than the budget."""
    return np.where(run.facts.success, run.changes, np.inf)


def _spread(changes: Sequence[Floats], count: int) -> list[int]:
    """Choose at most `count` rows, given the changes that each attack made to each of them.

    >>> some, every = np.array([0, np.inf, 2, 4, 9]), np.array([0, 3, 5, 6, 1])
    >>> _spread([some, every], 2), _spread([some, every], 4)
    ([2, 4], [2, 3, 4, 1])
    """
    fooled = np.isfinite(changes).sum(0)
    touched = (np.stack(changes) > 0).any(0) & (fooled > 0)
    pool = np.flatnonzero(touched) if touched.any() else np.arange(len(fooled))
    ranked = sorted(pool.tolist(), key=lambda row: -fooled[row])
    everyone = [row for row in ranked if fooled[row] == len(changes)]
    if len(everyone) <= count:
        return ranked[:count]
    return [everyone[place] for place in np.linspace(0, len(everyone) - 1, count).round().astype(int)]
