"""The path of a search with a trace as an animation: what it asks, question by question, until the sparsest example."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sigmazero.core.messages import class_name
from sigmazero.report.figures import style
from sigmazero.report.figures.figure import Figure, Option, Request
from sigmazero.report.figures.figure_one import Recorded, recorded
from sigmazero.report.figures.images import faint, is_image, mark, show
from sigmazero.store.trace import Trace

FRAMES = 40
PAUSE, LAST = 140, 2500  # milliseconds that a frame stays, and the last of them
HOW = "write trace = true in a plan, as experiments/figure-1.toml does"


def questions(trace: Trace, most: int = FRAMES) -> list[int]:
    """The questions to show, at most so many: the clean input, every record as far as they fit, others between them."""
    end = trace.records[-1]
    even = np.linspace(0, end, min(most, end + 1)).round().astype(int).tolist()
    records = trace.records[-(most // 2) :]
    free = [k for k in even if k not in records]
    spare = max(most - len(records), 1)
    kept = [free[k] for k in np.unique(np.linspace(0, len(free) - 1, min(spare, len(free))).round().astype(int))]
    return sorted({0, *kept, *records})[: most + 1]


def draw_path(request: Request) -> bytes:
    """The animation of the first traced search on an image that found something, or of the row asked for."""
    row = request.options.get("row")
    found = (one for one in recorded(request.store) if is_image(torch.from_numpy(one.trace.clean)[None]))
    for one in found:
        if row is None or _row(request, one) == row:
            return animate(one)
    which = "" if row is None else f" of row {row}"
    raise ValueError(f"{request.store.path} has no successful search{which} on an image with a trace; {HOW}")


def _row(request: Request, one: Recorded) -> int:
    """The number of a traced row in its data set."""
    facts, places = request.store.facts(one.info.key, perturbations=False), request.store.positions(one.info.key)
    held = {int(place): int(row) for place, row in zip(places, facts.row, strict=True)}
    return held.get(one.position, -1)


def animate(one: Recorded) -> bytes:
    """A GIF: the input as it is asked about, and what is changed of it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    clean, shown = torch.from_numpy(one.trace.clean), questions(one.trace)
    frames = []
    for question in shown:
        canvas = FigureCanvasAgg(_frame(one, clean, question))
        canvas.draw()
        frames.append(Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3]).quantize(64, dither=Image.Dither.NONE))
    file, pauses = BytesIO(), [PAUSE] * (len(frames) - 1) + [LAST]
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], duration=pauses, loop=0, optimize=False)
    return file.getvalue()


def _frame(one: Recorded, clean: Tensor, question: int) -> Any:
    trace, info = one.trace, one.info
    figure = style.figure(4.8, 2.9)
    left, right = figure.subplots(1, 2)
    point = torch.from_numpy(trace.point(question))
    named = class_name(info.about.get("classes"), int(trace.prediction[question]))
    show(left, point, style.plain(f"query {question}: taken for {named}"))
    show(right, faint(clean), f"{trace.l0[question]} features changed")
    if trace.l0[question]:
        mark(right, clean, point)
    figure.suptitle(style.plain(f"{info.attack} against {info.model} on {info.dataset}"), fontsize=9)
    style.change_key(figure, "outside lower center")
    return figure


FIGURE = Figure(
    "path",
    "The path of a search with a trace on an image, as an animation: .gif.",
    draw_path,
    formats=("gif",),
    options=(Option("row", "With --path: the row of the data set; the first that has a trace by default."),),
)
