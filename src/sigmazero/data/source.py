"""What every reader returns: all labels, and a way to get the images of chosen rows only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sigmazero.core import limits
from sigmazero.core.files import disguise
from sigmazero.data.errors import DataError
from sigmazero.spaces.space import Space

Array: TypeAlias = npt.NDArray[Any]

EXACT = 1 << 24  # whole numbers up to here have a single-precision value of their own
LONGEST = 200  # characters of a name
LABEL = 48  # bytes that a row takes besides its image: its label, and its number in a list


@dataclass(frozen=True)
class Source:
    """Labels of all rows; `fetch` gives images of the rows asked for, 8-bit or float in [0, 1].

    cost   bytes that the image of one row takes on the way to single precision
    names  of the features, where they have some: a table, whose values `fetch` gives as float in their own units
    """

    labels: Array
    fetch: Callable[[list[int]], Array]
    ids: Array | None = None
    cost: int = 0
    space: Space | None = None
    names: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None


def in_memory(images: Array, labels: Array, where: object) -> Source:
    """A source over arrays that are already loaded."""
    refuse_unequal(len(images), len(labels), where)
    cost = images[0].size * (images.itemsize + 4)
    return Source(labels.astype(np.int64), lambda rows: np.ascontiguousarray(images[rows]), cost=cost)


def refuse_unequal(images: int, labels: int, where: object) -> None:
    """Raise when images and labels are not as many, or none."""
    if images != labels:
        raise DataError(f"{where}: {images} images but {labels} labels; the files do not belong together")
    if images == 0:
        raise DataError(f"{where}: holds no rows; choose another file, or get it again")


def refuse_disguise(head: bytes, path: Path) -> None:
    """Raise when a download left something else in place of data, such as a web page."""
    found = disguise(head)
    if found:
        raise DataError(f"{path}: is {found}; the download went wrong, get the file again")


def refuse_inexact(low: float, high: float, whole: bool, what: str) -> None:
    """Raise when whole numbers lie beyond those that single precision tells apart, or others beyond all it holds."""
    worst, most = low if -low > high else high, EXACT if whole else float(np.finfo(np.float32).max)
    if abs(worst) > most:
        raise DataError(f"{what} is {worst:g}, beyond {most:g}; store it in a larger unit, thousands or logarithms")


def space_beside(path: Path) -> Space | None:
    """The space in the file beside a data file, `mine.space.toml` for `mine.npz`, or None where there is none."""
    place = path.with_name(f"{stem(path)}.space.toml")
    if not has_text(place):
        return None
    try:
        return Space.from_toml(place)
    except ValueError as error:
        raise DataError(str(error)) from None


def has_text(path: Path) -> bool:
    """Whether a file is there and not empty, as one is that a shell makes before a draft is written to it."""
    return path.is_file() and path.stat().st_size > 0


def stem(path: Path) -> str:
    """The name of a file without its endings: `adult` for `adult.csv.gz`."""
    name = path.name.removesuffix(".gz")
    return name[: name.rfind(".")] if "." in name[1:] else name


def afford(wanted: int, what: str, advice: str = "") -> None:
    """Refuse what would take more memory than the limit."""
    try:
        limits.afford(wanted, what, advice)
    except limits.TooLarge as error:
        raise DataError(str(error)) from None
