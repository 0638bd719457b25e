"""Shares from rows to columns as a shaded grid with its numbers in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sigmazero.report.figures import style

CELL = 0.48  # of a side in inches
DARK = 0.55  # shares above that have their number in white


def size(rows: int, columns: int, words: int) -> tuple[float, float]:
    """Width and height in inches of a grid with names of so many letters at its left and above."""
    beside = 0.075 * words + 0.7
    return max(2.8, CELL * columns + beside + 0.9), max(2.2, CELL * rows + beside)


def fill(axis: Any, shares: NDArray[Any], texts: Sequence[Sequence[str]], names: tuple[Sequence[str], ...]) -> Any:
    """Shade an axis: `shares` from 0 to 1, NaN for what is not known; `names` of the rows and of the columns."""
    drawn = axis.imshow(100 * shares, cmap="Blues", vmin=0, vmax=100)
    for (row, column), share in np.ndenumerate(shares):
        colour = "white" if share > DARK else "#222222"
        axis.text(column, row, texts[row][column], ha="center", va="center", fontsize=7, color=colour)
    down, across = ([style.plain(name) for name in some] for some in names)
    axis.set_xticks(range(len(across)), across, rotation=45, ha="right", fontsize=8)
    axis.set_yticks(range(len(down)), down, fontsize=8)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    return drawn
