"""Draw the paper's first figure from recorded traces: a search in a plane, and what it makes of an image.

    sigmazero run experiments/figure-1.toml
    python -m experiments.figures.figure_one runs/figure-1.db -o figure-1.pdf

A record is a point that reached the goal with fewer changes than all before it. Of each search the first, the middle
and the last record are shown; where there are only one or two, the point halfway to the first comes before them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sigmazero.core.messages import class_name
from sigmazero.report.figures import style
from sigmazero.report.figures.pictures import is_image, show, show_changes
from sigmazero.store.facts import CellInfo, Trace
from sigmazero.store.store import Store

HOW = "sigmazero run experiments/figure-1.toml makes one"
LEVELS = 26
FINE = 4  # points drawn per stored one, since the grooves of the objective are narrower than that
NUMBERS = "①②③"
BELOW: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13)}
START, FOUND, LINES = "#D62728", "#2CA02C", "#8C8C8C"


@dataclass(frozen=True)
class Recorded:
    """A search that found something, and the cell it belongs to."""

    info: CellInfo
    trace: Trace


def draw_figure_one(store: Store) -> Any:
    """Draw the figure from the first search in a plane and the first on an image that the store has."""
    found = list(recorded(store))
    plane = next((one for one in found if one.trace.landscape is not None), None)
    image = next((one for one in found if is_image(torch.from_numpy(one.trace.clean)[None])), None)
    if plane is None or image is None:
        lacks = "a problem with two features" if plane is None else "an image"
        raise ValueError(f"{store.path} has no successful search on {lacks} with a trace; {HOW}")
    return draw(plane, image)


def recorded(store: Store) -> Iterator[Recorded]:
    """Yield every traced search that reached its goal by changing something, in the order of the store."""
    for info in store.cells():
        for position in np.flatnonzero(store.traced(info.key)).tolist():
            trace = store.trace(info.key, position)
            if trace.records and trace.l0[trace.records[-1]] > 0:
                yield Recorded(info, trace)


def highlights(trace: Trace) -> list[int]:
    """Return the queries to show, in their order: three, or fewer of a short search."""
    records = trace.records
    if len(records) > 2:
        return [records[0], records[len(records) // 2], records[-1]]
    return sorted({(1 + records[0]) // 2, *records})


def draw(plane: Recorded, image: Recorded) -> Any:
    """Draw the landscape with the path at the left, the images at the right."""
    figure = style.figure(10.6, 4.3)
    left, right = figure.subfigures(1, 2, width_ratios=[1.0, 1.1])
    _plane(left.add_subplot(), plane)
    shown = highlights(image.trace)
    axes = right.subplots(2, len(shown), squeeze=False)
    clean = torch.from_numpy(image.trace.clean)
    for place, question in enumerate(shown):
        _image(axes[:, place], clean, image, question, NUMBERS[place])
    for axis, text in zip(axes[:, 0], ("adversarial", "perturbation"), strict=True):
        axis.set_ylabel(text, fontsize=9)
    right.suptitle("What it asks about an image, from many changes to few", fontsize=10)
    below = {**BELOW, "bbox_to_anchor": (0.5, -0.06)}
    axes[1, len(shown) // 2].legend(handles=style.change_patches(), fontsize=8, ncols=2, frameon=False, **below)
    return figure


def _image(axes: Any, clean: Tensor, image: Recorded, question: int, number: str) -> None:
    trace = image.trace
    became = class_name(image.info.about.get("classes"), int(trace.prediction[question]))
    point = torch.from_numpy(trace.point(question))
    show(axes[0], point, style.plain(f"predicted {became}"))
    axes[0].set_title(f"{number} query {question}", fontsize=9, pad=3)
    show_changes(axes[1], clean, point, f"l0 {trace.l0[question]}")


def objective(trace: Trace, smoothing: float | None) -> tuple[Any, Any]:
    """Return coordinates along a side, and what σ-zero minimises at each point: the margin plus the smooth l0 norm.

    Without a smoothing it is the margin alone, as for attacks that have no such term.
    """
    assert trace.landscape is not None
    coarse = np.linspace(0, 1, len(trace.landscape))
    fine = np.linspace(0, 1, FINE * (len(coarse) - 1) + 1)
    margin = _between(_between(trace.landscape, coarse, fine).T, coarse, fine).T
    if smoothing is None:
        return fine, margin
    first, second = (np.square(fine - x) / (np.square(fine - x) + smoothing) for x in trace.clean.flatten())
    return fine, np.maximum(margin, 0) + (first[None, :] + second[:, None]) / 2


def _between(values: NDArray[Any], old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    return np.stack([np.interp(new, old, row) for row in values])


def _plane(axis: Any, plane: Recorded) -> None:
    from matplotlib.colors import PowerNorm

    trace = plane.trace
    assert trace.landscape is not None
    along, height = objective(trace, plane.info.parameters.get("smoothing"))
    # Levels are closest at the bottom: where the goal is reached only the shallow grooves of the l0 norm are left.
    levels = height.min() + (height.max() - height.min()) * np.linspace(0, 1, LEVELS) ** 2
    drawn = axis.contourf(along, along, height, levels=levels, cmap="Blues", norm=PowerNorm(0.5))
    bar = axis.figure.colorbar(drawn, ax=axis, shrink=0.85, format="%.2g")
    smooth = plane.info.parameters.get("smoothing") is not None
    bar.set_label(
        "what is made small: margin and smooth l0" if smooth else "margin: below 0 the model is wrong", fontsize=8
    )
    bar.ax.tick_params(labelsize=7)
    side = np.linspace(0, 1, len(trace.landscape))
    axis.contour(side, side, trace.landscape, levels=[0], colors="black", linewidths=1.4)
    x = trace.clean.flatten()
    axis.axvline(x[0], color=LINES, linewidth=1.6)
    axis.axhline(x[1], color=LINES, linewidth=1.6, label="one feature changed")
    end = trace.records[-1]
    path = np.stack([trace.point(question).flatten() for question in range(1, end + 1)])
    axis.plot(*path.T, color="#333333", linewidth=1, marker=".", markersize=3, label="path")
    axis.plot([], [], color="black", linewidth=1.4, label="decision boundary")
    for number, question in zip(NUMBERS, highlights(trace), strict=False):
        point = trace.point(question).flatten()
        axis.plot(*point, "o", color="white", markeredgecolor="#333333", markersize=5, zorder=3)
        away = (6, 6) if question == end else (-14, 4)  # clear of the path, and of the star
        axis.annotate(number, point, away, textcoords="offset points", fontsize=11, zorder=5)
    axis.plot(*x, "o", color=START, markersize=9, zorder=4, label="the input")
    axis.plot(*path[-1], "*", color=FOUND, markeredgecolor="white", markersize=15, zorder=4, label="what was found")
    axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="feature 1", ylabel="feature 2")
    axis.set_title("The search with two features", fontsize=10)
    axis.legend(fontsize=7, ncols=3, frameon=False, **BELOW)


def main() -> None:
    """Draw the figure of a store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    asked = parser.parse_args()
    with Store(asked.store) as store:
        style.save(draw_figure_one(store), asked.out)
    sys.stdout.write(f"wrote {asked.out}\n")


if __name__ == "__main__":
    main()
