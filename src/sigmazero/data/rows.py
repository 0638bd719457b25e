"""Labelled inputs that know which rows of their data set they are, and how rows are chosen.

A subset is always a list of row numbers, never a shuffle, so two runs can be compared row by row.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sigmazero.core.files import disguise
from sigmazero.core.messages import one_line, shown
from sigmazero.spaces.space import Space

Array: TypeAlias = npt.NDArray[Any]
RowSpec: TypeAlias = str | slice | Sequence[int] | Tensor

PAPER_SEED = 1233


class DataError(ValueError):
    """Data that cannot be used as it is: wrong format, damaged, or asked for wrongly."""


class MissingData(DataError, FileNotFoundError):
    """Files that are in none of the searched folders."""


class MissingNotes(MissingData):
    """A table has no file beside it that describes its columns."""

    def __init__(self, table: str, notes: str) -> None:
        draft = "sigmazero.data.table.draft(path) writes a first one"
        super().__init__(f"{table}: needs {notes} beside it, which says what its columns are; {draft}")
        self.table, self.notes = table, notes


@dataclass(frozen=True)
class Source:
    """Hold the labels of all rows; `fetch` reads the images of chosen rows, 8-bit or float.

    names  of the features: a table, whose values `fetch` gives in their own units
    """

    labels: Array
    fetch: Callable[[list[int]], Array]
    ids: Array | None = None
    space: Space | None = None
    names: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    table: Any = None

    def rows(self, chosen: list[int], name: str, bounds: tuple[Any, Any] | None = None) -> Rows:
        """Return the chosen rows; 8-bit values are divided by 255 unless the bounds are other ones than 0 and 1."""
        values = self.fetch(chosen)
        scaled = values.dtype == np.uint8 and scales(bounds)
        double = self.names is not None and values.dtype == np.float64
        images = torch.from_numpy(values if double else values.astype(np.float32))
        if scaled:
            images /= 255
        ids = np.array(chosen) if self.ids is None else self.ids[chosen]
        labels, numbers = (torch.from_numpy(each.astype(np.int64)) for each in (self.labels[chosen], ids))
        return Rows(images, labels, numbers, name, self.space, self.names, self.classes, scaled, self.table)


def scales(bounds: tuple[Any, Any] | None) -> bool:
    """Tell whether 8-bit values are divided by 255: where the bounds are 0 and 1, or not given."""
    return bounds is None or all(bool(np.all(np.asarray(end) == at)) for end, at in zip(bounds, (0, 1), strict=True))


def in_memory(images: Array, labels: Array, where: object, **more: Any) -> Source:
    """Make a source over arrays that are already loaded."""
    if len(images) != len(labels):
        raise DataError(f"{where}: {len(images)} images but {len(labels)} labels; the files do not belong together")
    if len(images) == 0:
        raise DataError(f"{where}: holds no rows; choose another file, or get it again")
    return Source(labels.astype(np.int64), lambda rows: np.ascontiguousarray(images[rows]), **more)


@contextmanager
def reading(path: Path, fix: str = "the file is damaged, get it again") -> Iterator[None]:
    """Turn whatever a damaged file makes its reader raise into one line that names the file and the fix."""
    with path.open("rb") as file:
        if found := disguise(file.read(64)):
            raise DataError(f"{path}: is {found}; the download went wrong, get the file again")
    try:
        yield
    except (DataError, ImportError):
        raise
    except Exception as error:  # damaged files fail in as many ways as there are bytes
        raise DataError(f"{path}: cannot be read ({one_line(error)}); {fix}") from error


@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """Inputs with their labels, and the row number of each in the data set called `name`.

    space    what may change in these inputs, where the data says so
    names    of the features, in the order of the flat input; those of the space where only it has some
    classes  names of the classes, by label
    scaled   whether the values were 8-bit ones, which were divided by 255
    table    the `Table` that the rows were encoded from, if they were
    """

    images: Tensor
    labels: Tensor
    ids: Tensor
    name: str
    space: Space | None = None
    names: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    scaled: bool = False
    table: Any = None

    def __post_init__(self) -> None:
        """Refuse tensors that do not describe the same rows."""
        if not self.images.is_floating_point() or self.images.ndim < 2:
            seen = f"{self.images.dtype} {tuple(self.images.shape)}"
            raise DataError(f"images of {self.name} are {seen}; give float of shape (rows, ...), divide 8-bit by 255")
        for word, tensor in (("labels", self.labels), ("ids", self.ids)):
            if tensor.dtype != torch.int64 or tensor.shape != (len(self.images),):
                seen = f"{tensor.dtype} of shape {tuple(tensor.shape)}"
                raise DataError(f"{word} of {self.name} are {seen}; give int64 of shape ({len(self.images)},)")
        if self.names is None and self.space is not None and self.space.names is not None:
            object.__setattr__(self, "names", tuple(self.space.names))
        for word, names in (("names", self.names or ()), ("classes", self.classes or ())):
            if len(set(names)) < len(names):
                twice = next(name for k, name in enumerate(names) if name in names[:k])
                raise DataError(f"{word} of {self.name} hold {shown(twice)!r} twice; rename one of them")
        features, top = math.prod(self.images.shape[1:]), int(self.labels.max()) if len(self.labels) else 0
        if self.names is not None and len(self.names) != features:
            raise DataError(f"{len(self.names)} names for {features} features of {self.name}; name each feature once")
        if self.classes is not None and len(self.labels) and top >= len(self.classes):
            raise DataError(f"label {top} of {self.name} has no name; {len(self.classes)} are named, name all")
        if self.space is not None:
            self._check_space(self.space)

    def _check_space(self, space: Space) -> None:
        if space.names is not None and self.names != tuple(space.names):
            raise DataError(f"the features of {self.name} are not called as in its space; give both the same names")
        try:
            columns = space.columns(tuple(self.images.shape[1:]))
        except ValueError as error:
            raise DataError(f"{self.name}: {error}") from None
        if len(columns.rise) > 1:  # they would have to be chosen with the rows
            raise DataError(f"{self.name}: the space of a data set has one direction per feature, not per sample")

    def __repr__(self) -> str:
        """Return one line: the name, the number of rows, their shape, classes and range."""
        shape = tuple(self.images.shape[1:])
        if not self.images.numel():
            return f"<Rows of {self.name}: {len(self)} of shape {shape}>"
        low, high = (int(end(self.labels)) for end in (torch.min, torch.max))
        classes = f"labels {low} to {high}" if self.classes is None else f"{len(self.classes)} classes"
        values = f"values {float(self.images.min()):g} to {float(self.images.max()):g}"
        return f"<Rows of {self.name}: {len(self)} of shape {shape}, {classes}, {values}>"

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
        """Return the rows at these positions (0 is the first row here), in the order given."""
        chosen = torch.tensor(parse_rows(rows, len(self)), dtype=torch.int64, device="cpu")
        return replace(
            self,
            images=self.images[chosen.to(self.images.device)],
            labels=self.labels[chosen.to(self.labels.device)],
            ids=self.ids[chosen.to(self.ids.device)],
        )

    def limit(self, n: int, seed: int | None = None) -> Rows:
        """Return at most `n` rows, in their order: a sample with every class, or with a seed a random choice."""
        return self.select(take(list(range(len(self))), n, seed, self.labels.cpu().numpy()))


def class_places(model: Sequence[Any], data: Sequence[str]) -> list[int] | None:
    """Return where a model has each class of the data, by name; None where one of them has no name there.

    Names are compared as they are, then without case, blanks, dashes and underscores.
    """
    for spelled in (str, _spelled):
        names = [spelled(name) for name in model]
        wanted = [spelled(name) for name in data]
        if len(set(names)) == len(names) and len(set(wanted)) == len(wanted) and set(wanted) <= set(names):
            return [names.index(name) for name in wanted]
    return None


def _spelled(name: object) -> str:
    number = int(name) if isinstance(name, float) and name.is_integer() else name
    return re.sub("[ _-]", "", str(number).casefold())


def choose(n_total: int, count: int, seed: int) -> list[int]:
    """Pick `count` of `n_total` rows at random, in ascending order, the same on every machine and version.

    Each row has a fixed place in a queue that depends on the seed alone, so a larger count contains every smaller one.

    >>> choose(1000, 3, seed=0)
    [392, 404, 942]
    >>> set(choose(1000, 3, seed=0)) <= set(choose(1000, 50, seed=0))
    True
    """
    if not 0 <= count <= n_total:
        raise DataError(f"cannot choose {count} of {n_total} rows; ask for 0 to {n_total}")
    return sorted(sorted(range(n_total), key=lambda row: _queued(seed, row))[:count])


def _queued(seed: int, row: int) -> bytes:
    return hashlib.sha256(f"{seed}:{row}".encode()).digest()


def paper_subset(n_total: int, count: int, seed: int = PAPER_SEED) -> list[int]:
    """Return the rows of the paper's random subsets: a sample of 1..n-1 (row 0 is never used), in the order drawn.

    The order matters where the paper's batches of 32 are repeated. A larger count need not begin with a smaller one.

    >>> 0 in paper_subset(100, 99)
    False
    """
    if not 0 <= count <= max(n_total - 1, 0):
        raise DataError(f"the paper's rule draws from rows 1 to {n_total - 1}; cannot draw {count} of them")
    return random.Random(seed).sample(range(1, n_total), count)


def stratified(labels: Sequence[int] | Array, count: int) -> list[int]:
    """Pick `count` rows with each class in its share, in ascending order, the same on every machine.

    Within a class rows queue up as in `choose` with seed 0, and the classes take turns by their size. A larger count
    contains every smaller one.

    >>> stratified([0, 0, 0, 0, 1, 1], 3)
    [2, 3, 4]
    """
    numbers = np.asarray(labels)
    if not 0 <= count <= len(numbers):
        raise DataError(f"cannot choose {count} of {len(numbers)} rows; ask for 0 to {len(numbers)}")
    turns: list[tuple[float, bytes, int]] = []
    for label in np.unique(numbers):
        members = sorted((_queued(0, int(row)), int(row)) for row in np.flatnonzero(numbers == label))
        turns += [((rank + 0.5) / len(members), place, row) for rank, (place, row) in enumerate(members)]
    return sorted(row for _, _, row in sorted(turns)[:count])


def take(rows: list[int], limit: int | None, seed: int | None, labels: Array | None = None) -> list[int]:
    """Return at most `limit` of these rows in their order; `labels` are those of all rows.

    With a seed it is the choice of `choose`; without one that of `stratified`, or of `choose` with seed 0 if no
    labels are known.
    """
    if limit is None:
        return rows
    if limit < 1:
        raise DataError(f"limit must be at least 1, got {limit}")
    if limit >= len(rows):
        return rows
    if seed is None and labels is not None:
        return [rows[i] for i in stratified(labels[rows], limit)]
    return [rows[i] for i in choose(len(rows), limit, seed or 0)]


def parse_rows(rows: RowSpec | None, n_total: int) -> list[int]:
    """Turn "0:100", "5,7,9", a slice or a sequence into row numbers; None is every row.

    >>> parse_rows("2:6:2, 9", 10)
    [2, 4, 9]
    """
    if rows is None:
        return list(range(n_total))
    if isinstance(rows, str):
        pieces: Sequence[Any] = [_piece(text, rows) for text in rows.split(",")]
    else:
        pieces = [rows] if isinstance(rows, slice) else rows.tolist() if isinstance(rows, Tensor) else rows
    chosen: list[int] = []
    for piece in pieces:
        if isinstance(piece, slice):
            chosen += _span(piece, n_total)
        elif isinstance(piece, bool) or not isinstance(piece, int | np.integer):
            raise DataError(f"rows must be whole numbers, got {piece!r}")
        elif not 0 <= piece < n_total:
            raise DataError(f"row {piece} does not exist; there are {n_total} rows, 0 to {n_total - 1}")
        else:
            chosen.append(int(piece))
    if len(set(chosen)) != len(chosen):
        twice = next(row for i, row in enumerate(chosen) if row in chosen[:i])
        raise DataError(f"row {twice} is named more than once; name each row once")
    return chosen


def _piece(text: str, whole: str) -> int | slice:
    try:
        numbers = [int(part) if part.strip() else None for part in text.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) in (2, 3):
        return slice(*numbers)
    if len(numbers) != 1 or numbers[0] is None:
        raise DataError(f'cannot read rows {whole!r}: write "0:100", "5,7,9" or both, as in "0:100,250"')
    return numbers[0]


def _span(rows: slice, n_total: int) -> range:
    first, last = rows.start or 0, n_total if rows.stop is None else rows.stop
    stride = 1 if rows.step is None else rows.step
    # Python's own slices cut silently; a row that does not exist is more often a mistake than a wish.
    if first < 0 or last > n_total or first >= last or stride < 1:
        raise DataError(f"rows {first}:{last}:{stride} do not fit; there are {n_total} rows, and a step is 1 or more")
    return range(first, last, stride)
