"""What each attack changed, side by side: the same inputs clean, adversarial, and with the changed pixels marked.

The inputs shown are those that all attacks fooled, spread evenly over the data set; if these are too few, inputs that
fewer attacks fooled follow. Inputs that are wrong already are shown only if there are no others.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sigmazero.core import metrics
from sigmazero.core.messages import class_name
from sigmazero.report import measure
from sigmazero.report.figures import style
from sigmazero.report.figures.curves import labels, panels
from sigmazero.report.figures.figure import Figure, Option, Request
from sigmazero.report.figures.images import faint, is_image, mark, show
from sigmazero.report.inputs import Clean
from sigmazero.report.measure import Measured
from sigmazero.report.tables.layout import minimum_norm
from sigmazero.store.facts import CellInfo, Facts
from sigmazero.store.store import Store

ROWS = 6
# In inches: one image, the space beside it, its text below, and the space between two inputs.
IMAGE, GAP, TEXT, BETWEEN, HEAD, EDGE = 1.1, 0.07, 0.2, 0.16, 0.62, 0.12


@dataclass(frozen=True)
class Shown:
    """One attack: what to call it, and what it did to the inputs shown."""

    info: CellInfo
    name: str
    facts: Facts
    adversarial: Tensor


def draw_gallery(request: Request) -> dict[Path, Any]:
    """One figure per model and data set, by its path; with more than one, each file's name tells which it is."""
    rows = ROWS if request.options.get("rows") is None else request.options["rows"]
    if rows < 1:
        raise ValueError(f"rows={rows}: give 1 or more")
    every = panels(request.cells, request.mix)
    groups = [group for group in every if is_image(request.clean(group[0][0]).images)]
    if not groups:
        raise ValueError(f"{every[0][0][0].dataset} has inputs that are no images; curves can be drawn of any")
    paths = [request.path] if len(groups) == 1 else _paths(request.path, [group[0][0] for group in groups])
    figures = [draw_group(request.store, request.clean, group, rows) for group in groups]
    return dict(zip(paths, figures, strict=True))


def _paths(path: Path, infos: Sequence[CellInfo]) -> list[Path]:
    plain = ["".join(c if c.isalnum() or c in "-_." else "-" for c in f"{i.model}-{i.dataset}") for i in infos]
    # Two groups may share both names, when they differ in goal or weights.
    names = [name if plain.count(name) == 1 else f"{name}-{place + 1}" for place, name in enumerate(plain)]
    return [path.with_name(f"{path.stem}-{name}{path.suffix}") for name in names]


def draw_group(store: Store, clean_of: Clean, group: Sequence[Measured], rows: int) -> Any:
    """The figure of one model on one data set."""
    ordered = in_order(group)
    first = ordered[0][0]
    common = shared_rows(ordered)
    places = {info.key: _places(facts, common) for info, facts in ordered}
    chosen = choose([within(info, facts)[places[info.key]] for info, facts in ordered], rows)
    clean = clean_of(first).images[np.flatnonzero(store.stored(first.key))[places[first.key][chosen]]]
    names = labels([info for info, _ in ordered])
    columns = []
    for info, _ in ordered:
        facts = store.facts(info.key).take(places[info.key][chosen])
        name = names[info.key] if info.budget is None else f"{names[info.key]} at {info.budget}"
        columns.append(Shown(info, name, facts, facts.rebuild(clean)))
    return draw(clean, columns)


def in_order(group: Sequence[Measured]) -> list[Measured]:
    """From the least to the most effective, as in the tables; those with a budget after the others, by budget."""
    free = {info.key: (info, facts) for info, facts in group if info.budget is None}
    lines = minimum_norm(list(free.values()), mix=True).blocks[0] if free else ()
    fixed = [(info, facts) for info, facts in group if info.budget is not None]

    def strength(cell: Measured) -> tuple[float, float]:
        k = float(cell[0].budget or 0)
        return k, metrics.asr(measure.changes(cell[1], cell[0].unit), k)

    return [*(free[line.info.key] for line in lines), *sorted(fixed, key=strength)]


def shared_rows(cells: Sequence[Measured]) -> NDArray[np.int64]:
    """The rows that all cells have, in the order of the first."""
    common = cells[0][1].row
    for _, facts in cells[1:]:
        common = common[np.isin(common, facts.row)]
    if not len(common):
        raise ValueError(f"the attacks on {cells[0][0].model} have no row in common yet; let the run go on")
    return common


def _places(facts: Facts, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    place = {row: at for at, row in enumerate(facts.row.tolist())}
    return np.array([place[row] for row in rows.tolist()])


def within(info: CellInfo, facts: Facts) -> NDArray[np.float64]:
    """Changes per sample; infinitely many where they are more than the budget."""
    return np.where(facts.success, measure.changes(facts, info.unit), np.inf)


def choose(changes: Sequence[NDArray[np.float64]], count: int) -> list[int]:
    """At most `count` rows, given the number of changes that each attack made to each.

    >>> some, every = np.array([0, np.inf, 2, 4, 9]), np.array([0, 3, 5, 6, 1])
    >>> choose([some, every], 2), choose([some, every], 4)
    ([2, 4], [2, 3, 4, 1])
    """
    fooled = np.isfinite(changes).sum(0)
    touched = (np.stack(changes) > 0).any(0) & (fooled > 0)
    pool = np.flatnonzero(touched) if touched.any() else np.arange(len(fooled))
    ranked = sorted(pool.tolist(), key=lambda row: -fooled[row])
    everyone = [row for row in ranked if fooled[row] == len(changes)]
    if len(everyone) <= count:
        return ranked[:count]
    # Spread over the data set, which may be sorted by class.
    return [everyone[place] for place in np.linspace(0, len(everyone) - 1, count).round().astype(int)]


def draw(clean: Tensor, columns: Sequence[Shown]) -> Any:
    """Two lines per input: the adversarial inputs with prediction and l0, and below them what was changed."""
    step, block = IMAGE + GAP, 2 * IMAGE + TEXT + BETWEEN
    width, height = 2 * EDGE + (1 + len(columns)) * step + GAP, HEAD + len(clean) * block
    figure = style.figure(width, height)
    figure.set_layout_engine("none")  # all places are computed here; matplotlib is slow with so many

    def axis(row: int, line: int, column: int) -> Any:
        left = EDGE + column * step + (GAP if column else 0)
        bottom = height - HEAD - row * block - IMAGE - line * (IMAGE + TEXT)
        return figure.add_axes((left / width, bottom / height, IMAGE / width, IMAGE / height))

    info, facts = columns[0].info, columns[0].facts
    heading = textwrap.fill(title(info), int(15 * width))  # so many characters of this size fit in an inch
    figure.text(EDGE / width, 1 - 0.08 / height, heading, fontsize=8, va="top")
    style.change_key(figure, "upper right")
    for row in range(len(clean)):
        told = [class_name(info.about.get("classes"), int(each[row])) for each in (facts.label, facts.target)]
        label = f"class {told[0]}" + ("" if facts.target[row] < 0 else f", to {told[1]}")
        first = axis(row, 0, 0)
        show(first, clean[row], style.plain(f"{label}\nrow {facts.row[row]}"))
        if row == 0:
            _head(first, "clean", style.BEST)
        for place, column in enumerate(columns, 1):
            pair = axis(row, 0, place), axis(row, 1, place)
            _sample(pair, clean[row], column, row)
            if row == 0:
                _head(pair[0], column.name, style.colour(column.info.attack))
    return figure


def title(info: CellInfo) -> str:
    """What a page is about."""
    goal = "" if info.goal == "untargeted" else f", {info.goal}"
    counted = "pixels" if info.unit == "pixel" else "features"
    return style.plain(f"{info.model} on {info.dataset}{goal}; l0 counts {counted}")


def _head(axis: Any, name: str, colour: str) -> None:
    axis.set_title(textwrap.fill(name, 18), fontsize=7.5, color=colour, fontweight="bold", pad=3)


def _sample(axes: tuple[Any, Any], clean: Tensor, column: Shown, row: int) -> None:
    changes = float(within(column.info, column.facts)[row])
    became = class_name(column.info.about.get("classes"), int(column.facts.prediction[row]))
    if np.isinf(changes):
        show(axes[0], faint(clean), "not found")
    else:
        show(axes[0], column.adversarial[row], style.plain(f"→ {became}   l0 {changes:g}"))
    show(axes[1], faint(clean))
    if np.isfinite(changes):
        mark(axes[1], clean, column.adversarial[row])


FIGURE = Figure(
    "pictures",
    "Some inputs clean, adversarial and with their changes marked, per attack; as .pdf, .svg or .png.",
    draw_gallery,
    options=(Option("rows", f"With --pictures: how many inputs; {ROWS} by default."),),
    inputs=True,
)
