"""A table in memory: of each column its different texts, once, and for each row the number of its text."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sigmazero.core.text import shown
from sigmazero.data.errors import DataError
from sigmazero.data.source import Array, afford
from sigmazero.data.table_files import CellRows, opened

WORD = 160  # bytes that a text takes besides its characters: itself, and its place in two tables
CODE = 8  # bytes that a cell takes: its number, the room its column has to grow, and its share of a copy
PIECE = 1 << 22  # bytes between two looks at the memory taken
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True)
class TextColumn:
    """A column as it was read: `words` are its different texts, `codes` says which of them each row has."""

    name: str
    words: list[str]
    codes: Array
    rows: Array
    where: str

    def refuse(self, word: int, why: str) -> DataError:
        """The error about one of the texts, with the first row that has it."""
        row = self.rows[np.flatnonzero(self.codes == word)[0]]
        return DataError(f"{self.where}: row {row}, column {self.name!r}: {shown(self.words[word])!r} {why}")

    def is_number(self, word: int) -> bool:
        """Whether a text is one."""
        return _NUMBER.fullmatch(self.words[word]) is not None

    def numbers(self) -> Array:
        """The column as float64; what is no number is named."""
        values = np.zeros(len(self.words))
        for word in np.unique(self.codes).tolist():
            if not self.is_number(word):
                raise self.refuse(word, "is no number; correct it, name it as missing, or make the column a category")
            values[word] = float(self.words[word])
            if not np.isfinite(values[word]):
                raise self.refuse(word, "is too large; store it in a larger unit")
        return values[self.codes]

    def used(self) -> list[int]:
        """The texts that some row has."""
        return [int(word) for word in np.unique(self.codes)]


@dataclass(frozen=True)
class RawTable:
    """Columns of equal length, by name; `rows` are the numbers of their rows in the file."""

    columns: Mapping[str, TextColumn]
    rows: Array
    where: str

    @classmethod
    def read(cls, path: Path) -> RawTable:
        """A table file."""
        with opened(path) as (header, lines, unit):
            return cls.gather(header, lines, str(path), unit)

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], names: Sequence[str], where: str = "rows") -> RawTable:
        """A table of rows given as mappings from column to value; columns that are not named are left out."""
        for number, row in enumerate(rows):
            if absent := [name for name in names if name not in row]:
                raise DataError(f"{where}: row {number} has no column {absent[0]!r}; give each row every column")
        lines = ((number, [str(row[name]) for name in names]) for number, row in enumerate(rows))
        return cls.gather(list(names), lines, where, "row")

    @classmethod
    def gather(cls, header: list[str], lines: CellRows, where: str, unit: str) -> RawTable:
        """A table of lines of cells. Memory is counted as it grows, before it is taken."""
        known: list[dict[str, int]] = [{} for _ in header]
        codes = [array("i") for _ in header]
        count = texts = counted = 0
        for number, cells in lines:
            if len(cells) != len(header):
                has = f"{where}: {unit} {number} has {len(cells)} cells, and there are {len(header)} columns"
                raise DataError(f"{has}; mend it, or quote what holds a comma")
            for words, column, cell in zip(known, codes, cells, strict=True):
                text = cell.strip()
                code = words.get(text)
                if code is None:
                    code = words[text] = len(words)
                    texts += WORD + 4 * len(text)
                column.append(code)
            count += 1
            taken = CODE * count * len(header) + texts
            if taken > counted + PIECE:
                afford(taken, f"{where}: a table of {count} rows and more")
                counted = taken
        if not count:
            raise DataError(f"{where}: holds no rows under its header; choose another file")
        rows = np.arange(count)
        columns = {
            name: TextColumn(name, list(words), np.frombuffer(column, dtype=np.int32), rows, where)
            for name, words, column in zip(header, known, codes, strict=True)
        }
        return cls(columns, rows, where)

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.rows)

    def column(self, name: str) -> TextColumn:
        """A column by name, or an error that lists those there are."""
        if name not in self.columns:
            some = ", ".join(list(self.columns)[:20])
            raise DataError(f"{self.where}: there is no column {name!r}; it has {some}")
        return self.columns[name]

    def keep(self, rows: Array) -> RawTable:
        """The rows at these places, in this order."""
        left = self.rows[rows]
        columns = {
            name: TextColumn(name, column.words, column.codes[rows], left, column.where)
            for name, column in self.columns.items()
        }
        return RawTable(columns, left, self.where)
