"""Show results in a notebook: data frames, plots on matplotlib's axes, and a table with pictures as HTML."""

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sigmazero.core.extras import require
from sigmazero.core.metrics import Outcome
from sigmazero.core.result import Result
from sigmazero.report import spaces
from sigmazero.report.figures import curves, pictures, style
from sigmazero.report.figures.pictures import choose, is_image
from sigmazero.report.formats import NONE, headings, percent, sample_row
from sigmazero.report.pages.render import render

COLUMNS = (
    *("success", "l0", "l0_pixel", "cost", "outcome", "step_found", "forwards", "backwards"),
    *("margin", "clean_prediction", "prediction", "given_up", "judged"),
)
MAX_EXAMPLES, MAX_CHANGES = 4, 6


def frame(result: Result) -> Any:
    """Return a data frame with a line per sample."""
    pandas = require("pandas", "data", "Result.to_pandas")
    values = {name: getattr(result, name) for name in COLUMNS}
    columns = {name: value.detach().cpu().numpy() for name, value in values.items() if value is not None}
    columns["outcome"] = [Outcome(int(value)).name.lower() for value in columns["outcome"]]
    if result.classes is not None:
        for name in ("clean_prediction", "prediction"):
            columns[name] = [result.class_name(int(number)) for number in columns[name]]
    return pandas.DataFrame(columns, index=pandas.Index(result.ids.cpu().numpy(), name="id"))


def plot_curve(result: Result, axis: Any, label: str | None) -> Any:
    """Draw the share of all samples fooled with at most k changes, with its 95 % band."""
    axis = _subplots()[1] if axis is None else axis
    known = label is not None and label.split(",")[0] in style.COLOURS
    colour = style.NEUTRAL if label is None else style.colour(label.split(",")[0]) if known else None
    shade = 0.05 if axis.lines else 0.18  # bands upon each other would be a grey: the first is seen well
    last = axis.get_xlim()[1] if label else 0.0
    end = curves.draw_result(axis, result, shade=shade, label=label, color=colour)
    axis.set(xlim=(0, max(end, last)))
    axis.set_title(f"{len(result)} samples, 95 % intervals", fontsize=9)
    if label is not None:
        axis.legend(frameon=False, loc="lower right")
    return axis


def plot_examples(result: Result, x: Tensor | None, count: int) -> Any:
    """Draw images before and after, with the changed pixels marked below."""
    clean = _clean(result, x, "plot_examples")
    if not is_image(clean):
        raise ValueError(f"inputs of shape {tuple(clean.shape[1:])} are no images; use plot_changes or to_pandas")
    rows = choose(result, count)
    if not rows:
        raise ValueError("the result has no samples to show")
    figure, axes = _subplots(3, len(rows), figsize=(1.4 * len(rows), 4.6), squeeze=False)
    for column, row in zip(axes.T, rows, strict=True):
        label = result.class_name(int(result.clean_prediction[row]))
        for axis, text in zip(column, pictures.show_sample(column, result, clean, row, label), strict=True):
            axis.set_xlabel(text, fontsize=7, labelpad=2)
    figure.suptitle("before, after, and what changed", fontsize=9)
    style.change_key(figure)
    return axes


def plot_changes(result: Result, x: Tensor | None, axis: Any, count: int) -> Any:
    """Draw how often each pixel changed among the examples found, or which features changed most often."""
    clean = _clean(result, x, "plot_changes")
    axis = _subplots()[1] if axis is None else axis
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
    names = result.names if result.names is not None and len(result.names) == len(flat) else range(len(flat))
    axis.barh(range(len(top)), (100 * flat[top]).tolist(), color=style.NEUTRAL)
    axis.set_yticks(range(len(top)), [style.plain(str(names[int(k)])) for k in top])
    axis.set(xlabel="changed in % of the examples found", ylabel="feature")
    style.tidy(axis)
    return axis


def as_html(result: Result) -> str:
    """Return a table of the figures, and some samples, as HTML for a notebook."""
    row = sample_row(result.samples(), result.budget, result.unit)
    # A result does not know the true classes, nor whether it was targeted: that gives no clean accuracy.
    known = {"samples": row.pop("samples"), "already wrong": percent(result.summary()["already_wrong"])}
    figures = [{"": name, " ": text} for name, text in (known | row).items() if text != NONE]
    return with_samples(repr(result).strip("<>"), figures, result)


def with_samples(
    headline: str, table: Sequence[Mapping[str, str]], result: Result | None, lines: Sequence[str] = ()
) -> str:
    """Return a headline, a table and lines with some samples: a picture, or records of what changed in a table."""
    if result is None or result.x is None or not len(result):
        return show_html(headline, [table], lines=lines)
    return show_html(headline, [table], [draw_result(result, result.x)], [*_records(result), *lines])


def show_html(
    headline: str,
    tables: Sequence[Sequence[Mapping[str, str]]],
    figures: Sequence[Any] = (),
    lines: Sequence[str] = (),
) -> str:
    """Return a headline, tables given as rows of texts, matplotlib figures and lines as HTML for a notebook.

    A figure may be None, where matplotlib is not installed.
    """
    images = []
    for figure in filter(None, figures):
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=80)
        images.append(base64.b64encode(file.getvalue()).decode())
    return render(
        "notebook.html",
        headline=headline,
        tables=[(headings(rows), rows) for rows in tables],
        images=images,
        lines=lines,
    )


def draw_result(result: Result, x: Tensor) -> Any:
    """Return the picture of a result; None without matplotlib, which is an extra."""
    try:
        return pictures.draw(result, x, result.clean_prediction, count=MAX_EXAMPLES, classes=result.classes)
    except ImportError:
        return None


def _records(result: Result) -> list[str]:
    """Return what changed in the first fooled rows of a table, by name."""
    if result.x is None or result.x.ndim != 2:
        return []
    sites = spaces.sites_of(result.names or [f"feature {k}" for k in range(result.x.shape[1])], None)
    lines = []
    for row in (result.outcome.cpu() == Outcome.FOUND).nonzero().squeeze(1).tolist()[:MAX_EXAMPLES]:
        changes = [*map(str, spaces.changes_of(sites, result.x[row].tolist(), result.x_adv[row].tolist()))]
        more = f", and {len(changes) - MAX_CHANGES} more" if len(changes) > MAX_CHANGES else ""
        became, changed = pictures.words(result, row)
        was = result.class_name(int(result.clean_prediction[row]))
        some = ", ".join(changes[:MAX_CHANGES])
        lines.append(f"row {int(result.ids[row])}, {was} {became}, {changed}: {some}{more}")
    return lines


def _clean(result: Result, x: Tensor | None, name: str) -> Tensor:
    found = result.x if x is None else x
    if found is None:
        raise ValueError(f"the result does not know the clean inputs; pass them: result.{name}(x)")
    if found.shape != result.x_adv.shape:
        raise ValueError(f"x has shape {tuple(found.shape)}, the result is about {tuple(result.x_adv.shape)}")
    return found


def _subplots(*shape: int, **how: Any) -> Any:
    return require("matplotlib.pyplot", "plot", "this plot").subplots(*shape, layout="constrained", **how)
