"""Divide a plan between machines that know nothing of each other.

Batch i of a cell belongs to part (i + a number from the cell's key) modulo n. So each row is in exactly one part,
whatever order the cells have, whatever was run before, and also where a model or some rows are missing on one machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sigmazero.bench.cells import Cell


@dataclass(frozen=True)
class Shard:
    """One of several parts of a plan, counted from 1."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @staticmethod
    def parse(text: str) -> Shard:
        """Return the shard of a text such as 3/16.

        >>> Shard.parse("3/16")
        Shard(number=3, count=16)
        >>> Shard.parse("5/4")
        Traceback (most recent call last):
        ...
        ValueError: invalid shard '5/4': expected I/N with I from 1 to N, such as 3/16
        """
        found = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", text, re.ASCII)
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise ValueError(f"invalid shard {text!r}: expected I/N with I from 1 to N, such as 3/16")
        return Shard(int(found[1]), int(found[2]))

    def rows(self, cells: Iterable[Cell]) -> dict[str, NDArray[np.bool_]]:
        """Return which rows of each cell belong to this part, by the cell's key."""
        found = {}
        for cell in cells:
            batch = np.arange(cell.info.rows) // cell.question.batch_size
            first = int(cell.info.key[:8], 16) % self.count
            found[cell.info.key] = (batch + first) % self.count == self.number - 1
        return found
