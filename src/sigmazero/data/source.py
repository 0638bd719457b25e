"""What every reader returns: all labels, and a way to get the images of chosen rows only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sigmazero.core.files import disguise
from sigmazero.data.errors import DataError

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True)
class Source:
    """Labels of all rows; `fetch` gives images of the rows asked for, 8-bit or float in [0, 1]."""

    labels: Array
    fetch: Callable[[list[int]], Array]
    ids: Array | None = None


def in_memory(images: Array, labels: Array, where: object) -> Source:
    """A source over arrays that are already loaded."""
    if len(images) != len(labels):
        raise DataError(f"{where}: {len(images)} images but {len(labels)} labels; the files do not belong together")
    if len(images) == 0:
        raise DataError(f"{where}: holds no rows; choose another file, or get it again")
    return Source(labels.astype(np.int64), lambda rows: np.ascontiguousarray(images[rows]))


def refuse_disguise(head: bytes, path: Path) -> None:
    """Raise when a download left something else in place of data, such as a web page."""
    found = disguise(head)
    if found:
        raise DataError(f"{path}: is {found}; the download went wrong, get the file again")
