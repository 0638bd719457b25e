"""A part of a plan for each of several machines that know nothing of each other.

The cells of a plan are laid end to end, each as long as its rows are costly, and the line is cut into equal pieces. So
every shard has few models to load, and a cell is cut only where a piece ends, between two of its batches. Who has
which rows follows from the plan alone: not from the machine, from the order of the cells, or from what was run before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sigmazero.bench.cells import Cell, Missing


@dataclass(frozen=True)
class Shard:
    """One of several parts of a plan, counted from 1."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @staticmethod
    def parse(text: str) -> Shard:
        """From a text such as 3/16.

        >>> Shard.parse("3/16")
        Shard(number=3, count=16)
        >>> Shard.parse("5/4")
        Traceback (most recent call last):
        ...
        ValueError: shard 5/4: there is no part 5 of 4; give a number from 1 to 4
        """
        found = re.fullmatch(r"\s*(\d{1,9})\s*/\s*(\d{1,9})\s*", text, re.ASCII)
        if found is None:
            raise ValueError(f"shard {text!r} is none; write its number and how many there are, such as 3/16")
        number, count = map(int, found.groups())
        if count < 1:
            raise ValueError(f"shard {text}: a plan has 1 part or more; write 1/1 for all of it")
        if not 1 <= number <= count:
            raise ValueError(f"shard {text}: there is no part {number} of {count}; give a number from 1 to {count}")
        return Shard(number, count)


def mask(cells: Sequence[Cell], shard: Shard, costs: Mapping[str, int]) -> dict[str, NDArray[np.bool_]]:
    """Which rows of each cell belong to a shard, by the cell's key; `costs` has what a row of each cell costs.

    Each batch of a cell belongs to the shard in which its middle lies. All of it is whole numbers, so that no
    machine rounds otherwise.
    """
    # By content: cells of one model are neighbours. A cell that is asked under two names is one.
    known = {cell.info.key: cell for cell in sorted(cells, key=_place, reverse=True)}
    order = sorted(known.values(), key=_place)
    total = sum(cell.info.rows * costs[cell.info.key] for cell in order)
    found, before = {}, 0
    for cell in order:
        key, rows, size = cell.info.key, cell.info.rows, cell.question.batch_size
        mine = np.zeros(rows, np.bool_)
        for start in range(0, rows, size):
            length = min(size, rows - start) * costs[key]
            mine[start : start + size] = (2 * before + length) * shard.count // (2 * total) == shard.number - 1
            before += length
        found[key] = mine
    return found


def _place(cell: Cell) -> tuple[str, str, str, int]:
    return cell.info.data_hash, cell.info.model_sha256, cell.info.key, cell.question.batch_size


def rows_of(
    shard: Shard, cells: Sequence[Cell], missing: Sequence[Missing], costs: Mapping[str, int]
) -> dict[str, NDArray[np.bool_]]:
    """The mask of a shard; refused where a part of the plan is not here, as other machines would cut it otherwise."""
    if missing:
        raise ValueError(
            f"a shard is cut from the whole plan, and {missing[0].what} is missing here ({missing[0].advice}); "
            "fetch it, or take it out of the plan"
        )
    return mask(cells, shard, costs)
