"""Results in a notebook: a frame, plots on matplotlib's axes, and what is shown of one by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sigmazero.core.extras import require
from sigmazero.core.metrics import Outcome
from sigmazero.core.result import Result
from sigmazero.report.figures import style
from sigmazero.report.figures.images import is_image, mark, pixels, show
from sigmazero.report.figures.picture import choose
from sigmazero.report.html.shell import Html, element
from sigmazero.report.intervals import wilson
from sigmazero.report.optimality import curve
from sigmazero.report.png import data_uri
from sigmazero.report.spaces import NamedSite, changes_of
from sigmazero.report.tables.overview import run_row

COLUMNS = (
    *("success", "l0", "l0_pixel", "cost", "outcome", "step_found", "forwards", "backwards"),
    *("margin", "clean_prediction", "prediction", "given_up", "judged"),
)
WIDTH, HEIGHT, EDGE = 360, 180, 36  # of the curve in a notebook
EXAMPLES, CHANGES, MAGNIFIED = 4, 6, 84


def frame(result: Result) -> Any:
    """A data frame with a line per sample."""
    pandas = require("pandas", "data", "Result.to_pandas")
    held = {name: getattr(result, name) for name in COLUMNS}
    columns = {name: value.detach().cpu().numpy() for name, value in held.items() if value is not None}
    columns["outcome"] = [Outcome(int(value)).name.lower() for value in columns["outcome"]]
    if result.classes is not None:
        for name in ("clean_prediction", "prediction"):
            columns[name] = [result.class_name(int(number)) for number in columns[name]]
    return pandas.DataFrame(columns, index=pandas.Index(result.ids.cpu().numpy(), name="id"))


def plot_curve(result: Result, axis: Any, label: str | None) -> Any:
    """The share of all samples fooled with at most k changes."""
    axis = _axes() if axis is None else axis
    changes = result.samples().changes
    ks, rates = curve(changes) if len(result) else (np.zeros(1), np.zeros(1))
    ends = np.array([wilson(round(rate * len(result)), len(result)) for rate in rates]).reshape(-1, 2)
    end = max(1.0, 1.05 * float(ks[-1]))
    at, rate, low, high = (np.append(each, each[-1]) for each in (ks, 100 * rates, 100 * ends[:, 0], 100 * ends[:, 1]))
    at[-1] = end
    shade = 0.05 if axis.lines else 0.18  # bands upon each other would be a grey: the first is seen well
    (line,) = axis.step(at, rate, where="post", linewidth=2, label=label, color=_colour(label))
    axis.fill_between(at, low, high, step="post", color=line.get_color(), alpha=shade, linewidth=0)
    axis.set(ylim=(0, 101), xlim=(0, max(end, axis.get_xlim()[1] if label else 0.0)))
    axis.set(xlabel=f"k, {_unit(result)} changed at most", ylabel="attack success rate, %")
    axis.set_title(f"{len(result)} samples, 95 % intervals", fontsize=9)
    axis.xaxis.get_major_locator().set_params(integer=True)
    if label is not None:
        axis.legend(frameon=False, loc="lower right")
    style.tidy(axis)
    return axis


def plot_examples(result: Result, x: Tensor | None, count: int) -> Any:
    """Images before and after, with the changed pixels marked in the second."""
    clean = _clean(result, x, "plot_examples")
    if not is_image(clean):
        raise ValueError(f"inputs of shape {tuple(clean.shape[1:])} are no images; use plot_changes or to_pandas")
    rows = choose(result, count)
    if not rows:
        raise ValueError("the result has no samples to show")
    figure, axes = _pyplot().subplots(2, len(rows), figsize=(1.4 * len(rows), 3.2), squeeze=False, layout="constrained")
    for (above, below), row in zip(axes.T, rows, strict=True):
        before, after = clean[row].cpu(), result.x_adv[row].cpu()
        show(above, before, f"class {result.class_name(int(result.clean_prediction[row]))}")
        show(below, after, "\n".join(_words(result, row).rsplit(", ", 1)))  # in one line they would run into each other
        mark(below, before, after)
    figure.suptitle("before, and after", fontsize=9)
    style.change_key(figure)
    return axes


def plot_changes(result: Result, x: Tensor | None, axis: Any, count: int) -> Any:
    """How often each pixel changed among the examples found, or which features changed most often."""
    clean = _clean(result, x, "plot_changes")
    axis = _axes() if axis is None else axis
    found = result.outcome.cpu() == Outcome.FOUND  # what is wrong already has no changes to show
    changed = (clean.cpu() != result.x_adv.cpu())[found]
    share = changed.double().mean(0) if len(changed) else torch.zeros(clean.shape[1:], dtype=torch.float64)
    if is_image(clean):
        drawn = axis.imshow(100 * share.amax(0).numpy(), cmap="magma", vmin=0, interpolation="nearest")
        axis.figure.colorbar(drawn, ax=axis, label="changed in % of the examples found")
        axis.set(xticks=[], yticks=[])
        return axis
    flat = share.flatten()
    top = flat.argsort(descending=True, stable=True)[:count].flip(0)
    axis.barh([str(int(k)) for k in top], (100 * flat[top]).tolist(), color=style.NEUTRAL)
    axis.set(xlabel="changed in % of the examples found", ylabel="feature")
    style.tidy(axis)
    if result.names is not None and len(result.names) == len(flat):
        axis.set_yticks(range(len(top)), [result.names[int(k)] for k in top])
    return axis


def as_html(result: Result) -> str:
    """The figures, the curve and a few examples; nothing in it is fetched."""
    figures = run_row(result, result.clean_prediction)
    figures.pop("clean accuracy", None)  # of that a result knows nothing
    rows = [
        element("tr", element("th", name, style="text-align:left"), element("td", text))
        for name, text in figures.items()
    ]
    parts = [element("table", *rows), _svg(result) if len(result) else "", _examples(result)]
    return element(
        "div",
        element("b", repr(result).strip("<>")),
        element("div", *parts, style="display:flex;gap:2em;flex-wrap:wrap"),
    )


def _svg(result: Result) -> Html:
    """The curve as a drawing of a few hundred bytes."""
    ks, rates = curve(result.samples().changes)
    end = max(1.0, float(ks[-1]))
    across, down = WIDTH - 2 * EDGE, HEIGHT - 2 * EDGE
    at = [(EDGE + across * k / end, HEIGHT - EDGE - down * rate) for k, rate in zip(ks, rates, strict=True)]
    path = f"M{at[0][0]:.1f},{at[0][1]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in at[1:]) + f"H{WIDTH - EDGE}"
    frame_ = f"M{EDGE},{EDGE}V{HEIGHT - EDGE}H{WIDTH - EDGE}"
    texts = [
        (EDGE, HEIGHT - EDGE + 14, "0"),
        (WIDTH - EDGE, HEIGHT - EDGE + 14, f"{end:g}"),
        (WIDTH / 2, HEIGHT - 6, f"k, {_unit(result)} changed at most"),
        (WIDTH / 2, EDGE - 12, "fooled with at most k changes, %"),
        (EDGE - 16, EDGE + 4, "100"),
    ]
    drawn = [
        element("text", text, x=x, y=y, text_anchor="middle", font_size=11, fill="currentColor") for x, y, text in texts
    ]
    lines = [
        element("path", d=frame_, fill="none", stroke="currentColor", stroke_opacity="0.4"),
        element("path", d=path, fill="none", stroke="currentColor", stroke_width=2),
    ]
    return element("svg", *lines, *drawn, width=WIDTH, height=HEIGHT, role="img", aria_label="robustness curve")


def _examples(result: Result) -> Html:
    if result.x is None or not is_image(result.x):
        return _lines(result)
    shown = []
    for row in choose(result, EXAMPLES):
        pictures = [_picture(image) for image in (result.x[row].cpu(), result.x_adv[row].cpu())]
        shown.append(element("figure", *pictures, element("figcaption", _words(result, row)), style="margin:0"))
    return element("div", *shown, style="display:flex;gap:1em;flex-wrap:wrap")


def _lines(result: Result) -> Html:
    """The first rows of a table that were fooled: what changed, by name."""
    if result.x is None or result.x.ndim != 2:
        return Html("")
    sites, said = _sites(result.names or [f"feature {k}" for k in range(result.x.shape[1])]), []
    for row in (result.outcome.cpu() == Outcome.FOUND).nonzero().squeeze(1).tolist()[:EXAMPLES]:
        before, after = result.x[row].tolist(), result.x_adv[row].tolist()
        changes = [str(change) for change in changes_of(sites, before, after)]
        more = f", and {len(changes) - CHANGES} more" if len(changes) > CHANGES else ""
        words = f"row {int(result.ids[row])}, {_words(result, row)}: {', '.join(changes[:CHANGES])}{more}"
        said.append(element("li", words))
    return element("ul", *said) if said else Html("")


def _sites(names: Sequence[str]) -> list[NamedSite]:
    """What to tell of as one change: a feature, or the columns "job=cook" and "job=nurse" of one category.

    >>> [site.name for site in _sites(["age", "job=cook", "job=nurse"])]
    ['age', 'job']
    """
    held: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        held.setdefault(name.partition("=")[0], []).append(place)
    made = []
    for word, places in held.items():
        labels = tuple(names[k].removeprefix(f"{word}=") for k in places)
        if len(places) > 1 and all(names[k] != label for k, label in zip(places, labels, strict=True)):
            made.append(NamedSite(word, tuple(places), labels, True, 1.0))
        else:
            made += [NamedSite(names[k], (k,), (names[k],), False, 1.0) for k in places]
    return made


def _picture(image: Tensor) -> Html:
    values = np.asarray(pixels(image))
    bytes_ = np.round(255 * np.clip(values.reshape(*values.shape[:2], -1), 0, 1)).astype(np.uint8)
    return element("img", src=data_uri(bytes_), width=MAGNIFIED, style="image-rendering:pixelated", alt="")


def _words(result: Result, row: int) -> str:
    if not result.found[row]:
        return f"{result.class_name(int(result.clean_prediction[row]))}: not fooled"
    before, after = (result.class_name(int(each[row])) for each in (result.clean_prediction, result.prediction))
    beyond = "" if result.success[row] else " beyond the budget"
    return f"{before} → {after}, {float(result.changes[row]):g} changed{beyond}"


def _clean(result: Result, x: Tensor | None, name: str) -> Tensor:
    found = result.x if x is None else x
    if found is None:
        raise ValueError(f"the result does not know the clean inputs; pass them: result.{name}(x)")
    if found.shape != result.x_adv.shape:
        raise ValueError(f"x has shape {tuple(found.shape)}, the result is about {tuple(result.x_adv.shape)}")
    return found


def _unit(result: Result) -> str:
    return "pixels" if result.unit == "pixel" else "features"


def _colour(label: str | None) -> str | None:
    """An attack's own colour where the label is its name; otherwise the next of matplotlib's."""
    return style.NEUTRAL if label is None else style.known_colour(label)


def _pyplot() -> Any:
    return require("matplotlib.pyplot", "plot", "this plot")


def _axes() -> Any:
    return _pyplot().subplots(layout="constrained")[1]
