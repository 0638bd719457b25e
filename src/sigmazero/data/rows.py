"""A batch of labelled inputs that knows which rows of its data set it holds, and how rows are chosen.

A subset is always a list of row numbers, never a shuffle, so two runs can be compared row by row.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from sigmazero.core.text import shown
from sigmazero.data.errors import DataError
from sigmazero.spaces.space import Space

RowSpec: TypeAlias = str | slice | Sequence[int] | Tensor

PAPER_SEED = 1233


@dataclass(frozen=True, eq=False)
class Rows:
    """Inputs with their labels, and the row number of each in the data set called `name`.

    space    what may change in these inputs, where the data says so
    names    of the features, in the order of the flat input; those of the space where only it has some
    classes  names of the classes, by label
    scaled   whether the values were 8-bit ones, which were divided by 255
    """

    images: Tensor
    labels: Tensor
    ids: Tensor
    name: str
    space: Space | None = None
    names: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    scaled: bool = False

    def __post_init__(self) -> None:
        """Refuse tensors that do not describe the same rows."""
        if not self.images.is_floating_point() or self.images.ndim < 2:
            raise DataError(
                f"images of {self.name} must be a float tensor of shape (rows, ...), "
                f"got {self.images.dtype} {tuple(self.images.shape)}; divide 8-bit values by 255 first"
            )
        for word, tensor in (("labels", self.labels), ("ids", self.ids)):
            if tensor.dtype != torch.int64 or tensor.shape != (len(self.images),):
                raise DataError(
                    f"{word} of {self.name} must be int64 of shape ({len(self.images)},), "
                    f"got {tensor.dtype} {tuple(tensor.shape)}"
                )
        if self.names is None and self.space is not None and self.space.names is not None:
            object.__setattr__(self, "names", tuple(self.space.names))
        self._check_names()
        self._check_space()

    def _check_names(self) -> None:
        features = math.prod(self.images.shape[1:])
        for word, names in (("names", self.names or ()), ("classes", self.classes or ())):
            if len(set(names)) < len(names):
                twice = next(name for k, name in enumerate(names) if name in names[:k])
                raise DataError(f"{word} of {self.name} hold {shown(twice)!r} twice; rename one of them")
        if self.names is not None and len(self.names) != features:
            raise DataError(f"{len(self.names)} names for {features} features of {self.name}; name each feature once")
        if self.classes is not None and len(self.labels) and int(self.labels.max()) >= len(self.classes):
            raise DataError(
                f"label {int(self.labels.max())} of {self.name} has no name, its classes are "
                f"{len(self.classes)}; name every class"
            )

    def _check_space(self) -> None:
        if self.space is None:
            return
        if self.space.names is not None and self.names != tuple(self.space.names):
            raise DataError(f"the features of {self.name} are not called as in its space; give both the same names")
        try:
            columns = self.space.columns(tuple(self.images.shape[1:]))
        except ValueError as error:
            raise DataError(f"{self.name}: {error}") from None
        if len(columns.rise) > 1:  # they would have to be chosen with the rows
            raise DataError(f"{self.name}: the space of a data set has one direction per feature, not per sample")

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.labels)

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of images and labels with their shape and type: equal exactly when the content is equal.

        No name, no id and no space enters, so the same pictures from two files have the same hash.
        """
        images = self.images.detach().cpu().contiguous()
        kind = str(images.dtype).removeprefix("torch.")
        digest = hashlib.sha256(f"rows 1 {kind} {','.join(map(str, images.shape))}\n".encode())
        # Bit patterns, because numpy has no bfloat16; little-endian, so that every machine agrees.
        bits = images.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[images.itemsize]).numpy()
        digest.update(bits.astype(bits.dtype.newbyteorder("<"), copy=False).tobytes())
        digest.update(self.labels.detach().cpu().numpy().astype("<i8").tobytes())
        return digest.hexdigest()

    def select(self, rows: RowSpec) -> Rows:
        """The rows at these positions (0 is the first row held here), in the order given."""
        chosen = torch.tensor(parse_rows(rows, len(self)), dtype=torch.int64, device="cpu")
        return replace(
            self,
            images=self.images[chosen.to(self.images.device)],
            labels=self.labels[chosen.to(self.labels.device)],
            ids=self.ids[chosen.to(self.ids.device)],
        )

    def limit(self, n: int, seed: int | None = None) -> Rows:
        """At most `n` rows: the first, or with a seed a random choice in the order held here."""
        return self.select(take(list(range(len(self))), n, seed))


def choose(n_total: int, count: int, seed: int) -> list[int]:
    """Pick `count` of `n_total` rows at random, in ascending order, the same on every machine and version.

    Each row has a fixed place in a queue that depends on the seed alone; the first `count` are taken. A larger
    count therefore contains every smaller one, and results of a small run stay useful for a larger one.

    >>> choose(1000, 3, seed=0)
    [392, 404, 942]
    >>> set(choose(1000, 3, seed=0)) <= set(choose(1000, 50, seed=0))
    True
    """
    if not 0 <= count <= n_total:
        raise DataError(f"cannot choose {count} of {n_total} rows; ask for 0 to {n_total}")

    def place(row: int) -> bytes:
        return hashlib.sha256(f"{seed}:{row}".encode()).digest()

    return sorted(sorted(range(n_total), key=place)[:count])


def paper_subset(n_total: int, count: int, seed: int = PAPER_SEED) -> list[int]:
    """The rows of the paper's random subsets: a sample of 1..n-1 (row 0 is never used), in the order drawn.

    The order matters to anyone who repeats the paper's batches of 32, so it is kept; sort it otherwise. A
    larger count does not in general begin with a smaller one.

    >>> 0 in paper_subset(100, 99)
    False
    """
    if not 0 <= count <= max(n_total - 1, 0):
        raise DataError(f"the paper's rule draws from rows 1 to {n_total - 1}; cannot draw {count} of them")
    return random.Random(seed).sample(range(1, n_total), count)


def take(rows: list[int], limit: int | None, seed: int | None) -> list[int]:
    """At most `limit` of these rows, the first or a seeded choice, keeping their order."""
    if limit is None:
        return rows
    if limit < 1:
        raise DataError(f"limit must be at least 1, got {limit}")
    if seed is None or limit >= len(rows):
        return rows[:limit]
    return [rows[i] for i in choose(len(rows), limit, seed)]


def parse_rows(rows: RowSpec | None, n_total: int) -> list[int]:
    """Turn "0:100", "5,7,9", a slice or a sequence into row numbers; None is every row.

    >>> parse_rows("2:6:2, 9", 10)
    [2, 4, 9]
    """
    if rows is None:
        return list(range(n_total))
    if isinstance(rows, str):
        chosen = [row for piece in rows.split(",") for row in _parse_piece(piece.strip(), rows, n_total)]
    elif isinstance(rows, slice):
        chosen = _span(rows.start, rows.stop, rows.step, n_total)
    else:
        chosen = [_whole(row) for row in (rows.tolist() if isinstance(rows, Tensor) else rows)]
    for row in chosen:
        if not 0 <= row < n_total:
            raise DataError(f"row {row} does not exist; there are {n_total} rows, 0 to {n_total - 1}")
    if len(set(chosen)) != len(chosen):
        twice = next(row for i, row in enumerate(chosen) if row in chosen[:i])
        raise DataError(f"row {twice} is named more than once; name each row once")
    return chosen


def _whole(row: object) -> int:
    if isinstance(row, bool) or not isinstance(row, int | np.integer):
        raise DataError(f"rows must be whole numbers, got {row!r}")
    return int(row)


def _parse_piece(piece: str, whole: str, n_total: int) -> list[int]:
    parts = piece.split(":")
    try:
        numbers = [int(part) if part.strip() else None for part in parts]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 3 or (len(numbers) == 1 and numbers[0] is None):
        raise DataError(f'cannot read rows {whole!r}: write "0:100", "5,7,9" or both, as in "0:100,250"')
    if len(numbers) == 1 and numbers[0] is not None:
        return [numbers[0]]
    return _span(numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else None, n_total)


def _span(start: int | None, stop: int | None, step: int | None, n_total: int) -> list[int]:
    first, last, stride = start or 0, n_total if stop is None else stop, 1 if step is None else step
    # Python's own slices cut silently; a row that does not exist is more often a mistake than a wish.
    if first < 0 or last > n_total or first >= last or stride < 1:
        raise DataError(
            f"rows {first}:{last}:{stride} do not fit; there are {n_total} rows, so use "
            f"start:stop with 0 <= start < stop <= {n_total} and a step of at least 1"
        )
    return list(range(first, last, stride))
