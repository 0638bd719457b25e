"""How one column of a table becomes columns of a tensor, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sigmazero.data.errors import DataError
from sigmazero.data.source import Array, refuse_inexact
from sigmazero.data.table import TextColumn
from sigmazero.data.table_files import check_name

MOST_WORDS = 1000


@dataclass(frozen=True)
class EncodedColumn:
    """One column of a table: real or integer numbers with their ends, mean and deviation, or a category's words."""

    name: str
    kind: str
    lower: float = 0.0
    upper: float = 1.0
    mean: float = 0.0
    deviation: float = 1.0
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no table gives."""
        if self.kind not in ("real", "integer", "category"):
            raise DataError(f"encoder: column {self.name!r} is {self.kind!r}, not real, integer or category")
        numbers = (self.lower, self.upper, self.mean, self.deviation)
        if not all(np.isfinite(numbers)) or self.lower > self.upper or self.deviation <= 0:
            raise DataError(f"encoder: the numbers of column {self.name!r} cannot be right; fit it again")
        if (self.kind == "category") != bool(self.words) or len(set(self.words)) < len(self.words):
            raise DataError(f"encoder: column {self.name!r} needs words if it is a category, each of them once")

    @property
    def names(self) -> tuple[str, ...]:
        """What the columns of the tensor are called."""
        return tuple(f"{self.name}={word}" for word in self.words) or (self.name,)

    @classmethod
    def number(cls, column: TextColumn, fitted: Array) -> EncodedColumn:
        """A numeric column; mean and deviation are those of the rows in `fitted`."""
        values = column.numbers()
        whole = bool((values == np.round(values)).all())
        low, high, some = float(values.min()), float(values.max()), values[fitted]
        refuse_inexact(low, high, whole, f"{column.where}: a value of column {column.name!r}")
        deviation = float(some.std())
        # Rounding leaves a little deviation where all are equal.
        usable = deviation > 1e-9 * max(abs(low), abs(high))
        kind = "integer" if whole else "real"
        return cls(column.name, kind, low, high, float(some.mean()), deviation if usable else 1.0)

    @classmethod
    def category(cls, column: TextColumn, words: Sequence[str] | None) -> EncodedColumn:
        """A category; without words, those of the table in the order of the alphabet."""
        check_name(column.name, f"{column.where}: the name of a category")
        if "=" in column.name:
            raise DataError(f"{column.where}: category {column.name!r} has a = in its name; rename it")
        found = [column.words[word] for word in column.used()]
        if words is None and len(found) > MOST_WORDS:
            raise DataError(f"{column.where}: column {column.name!r} has {len(found)} different words; drop it")
        for word in words if words is not None else found:
            check_name(word, f"{column.where}: a word of column {column.name!r}")
        made = cls(column.name, "category", words=tuple(words if words is not None else sorted(found)))
        made.places(column)
        return made

    def places(self, column: TextColumn) -> Array:
        """For each text of a column the place of that word; a text that is none of the words is named."""
        known = {word: place for place, word in enumerate(self.words)}
        found = np.zeros(len(column.words), dtype=np.int64)
        for word in column.used():
            if column.words[word] not in known:
                some = ", ".join(self.words[:8]) + (", ..." if len(self.words) > 8 else "")
                raise column.refuse(word, f"is none of its words ({some}); correct it, or fit the encoder again")
            found[word] = known[column.words[word]]
        return found

    def encode(self, column: TextColumn) -> Array:
        """The values of a column, (rows, 1), or one column for each word."""
        if not self.words:
            values = column.numbers()[:, None]
            if self.kind == "integer" and (values != np.round(values)).any():
                wrong = int(column.codes[np.flatnonzero(values != np.round(values))[0]])
                raise column.refuse(
                    wrong, "is no whole number, as the others are; correct it, or fit the encoder again"
                )
            refuse_inexact(
                values.min(), values.max(), self.kind == "integer", f"{column.where}: a value of column {self.name!r}"
            )
            return values
        hot: Array = np.eye(len(self.words))[self.places(column)[column.codes]]
        return hot

    def decode(self, values: Array) -> list[Any]:
        """What people call such values."""
        if not self.words:
            numbers = values[:, 0].tolist()
            return [int(number) for number in numbers] if self.kind == "integer" else numbers
        if not (((values == 0) | (values == 1)).all() and (values.sum(1) == 1).all()):
            raise DataError(f"the columns of {self.name!r} are not one 1 and else 0 in every row, so they name no word")
        return [self.words[place] for place in values.argmax(1)]
