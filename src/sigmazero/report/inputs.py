"""What a report needs of the clean inputs, which it does not load itself: whoever asks for it knows how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from sigmazero.store.facts import CellInfo


class CleanRows(Protocol):
    """All rows of a cell, in its order: the inputs, and their numbers in the data set."""

    @property
    def images(self) -> Tensor:
        """The inputs, as they were attacked."""

    @property
    def ids(self) -> Tensor:
        """The number of each row in its data set."""


Clean = Callable[[CellInfo], CleanRows]
