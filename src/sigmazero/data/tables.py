"""Tables in files: rows encoded as tensors, with names, classes and a space. `data.table_notes` says what is beside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sigmazero.core.text import shown
from sigmazero.data.encoded import MOST_WORDS, EncodedColumn
from sigmazero.data.encoder import Encoder
from sigmazero.data.errors import DataError, MissingData, MissingNotes
from sigmazero.data.rows import Rows
from sigmazero.data.source import Array, Source, has_text, space_beside, stem
from sigmazero.data.table import RawTable, TextColumn
from sigmazero.data.table_files import check_name
from sigmazero.data.table_notes import TableNotes
from sigmazero.spaces.space import Space


@dataclass(frozen=True)
class TableFile:
    """A table with what is said about it: rows of any part, encoded, with names, classes and a space."""

    path: Path
    notes: TableNotes
    table: RawTable

    @cached_property
    def kept(self) -> RawTable:
        """The rows in which nothing is missing, of all parts."""
        columns = [self.table.column(name) for name in (*self._used(), self.notes.label)]
        complete = np.ones(len(self.table), dtype=bool)
        for column in columns:
            gone = [word for word in column.used() if column.words[word] == self.notes.missing]
            if "" in column.words and self.notes.missing != "":
                word = column.words.index("")
                raise column.refuse(word, 'is empty; fill it, or write missing = "" to leave such rows out')
            complete &= ~np.isin(column.codes, gone)
        if not complete.any():
            raise DataError(f"{self.path}: every row has {self.notes.missing!r} in some column; drop those columns")
        return self.table.keep(np.flatnonzero(complete))

    def _used(self) -> list[str]:
        out = {self.notes.label, *self.notes.drop, self.notes.split.get("column")}
        for name in (*self.notes.drop, *self.notes.categories):
            self.table.column(name)
        return [name for name in self.table.columns if name not in out]

    @cached_property
    def encoder(self) -> Encoder:
        """The saved encoder, or one fitted to the table."""
        if self.notes.encoder is not None:
            return Encoder.read(self.path.with_name(self.notes.encoder))
        fit = self.notes.split.get("fit")
        out = [name for name in self.table.columns if name not in self._used()]
        fitted = None if fit is None else self._part(fit)
        return Encoder.fit(self.kept, categories=self.notes.categories, leave_out=out, fitted=fitted)

    @cached_property
    def space(self) -> Space:
        """What may change: the file beside, or everything within what the table shows."""
        beside = space_beside(self.path)
        if beside is None:
            return self.encoder.space(self.notes.change)
        if self.notes.change:
            raise DataError(f"{notes_of(self.path)}: has change, and there is a space file too; say it in one place")
        return beside

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, by label."""
        return EncodedColumn.category(self.kept.column(self.notes.label), self.notes.classes or self._order()).words

    def _order(self) -> list[str]:
        """The classes in the order of the alphabet, or of the numbers they are."""
        column = self.kept.column(self.notes.label)
        words, found = [column.words[word] for word in column.used()], column.used()
        if len(words) > MOST_WORDS:
            raise DataError(f"{self.path}: label {column.name!r} has {len(words)} different texts; it is no class")
        return sorted(words, key=float) if all(map(column.is_number, found)) else sorted(words)

    def _part(self, part: str | None) -> Array:
        """Places of the rows of a part; all without one."""
        if part is None:
            return np.arange(len(self.kept))
        column = self.kept.column(self.notes.split["column"])
        if part not in column.words:
            raise DataError(f"{self.path}: no row of column {column.name!r} is {part!r}; it has {_some(column.words)}")
        return np.flatnonzero(column.codes == column.words.index(part))

    def source(self, part: str | None = None) -> Source:
        """A part as the loader wants it; the one that the notes name unless given. `ids` count the rows of the file."""
        table = self.kept.keep(self._part(self.notes.split.get("part") if part is None else part))
        label = table.column(self.notes.label)
        labels = EncodedColumn(label.name, "category", words=self.classes).places(label)[label.codes]
        names = self.encoder.names

        def fetch(rows: list[int]) -> Array:
            values: Array = self.encoder.encode(table.keep(np.array(rows, dtype=np.int64))).numpy()
            return values

        return Source(
            labels, fetch, table.rows, cost=20 * len(names), space=self.space, names=names, classes=self.classes
        )

    def rows(self, part: str | None = None) -> Rows:
        """All rows of a part, such as "train"; the one that the notes name unless given."""
        source = self.source(part)
        images = torch.from_numpy(source.fetch(list(range(len(source.labels)))))
        labels, ids = (torch.from_numpy(np.asarray(a, dtype=np.int64)) for a in (source.labels, source.ids))
        return Rows(images, labels, ids, self.path.name, self.space, self.encoder.names, self.classes)


def open_table(path: str | Path, notes: str | Path | None = None) -> TableFile:
    """A table file with the notes beside it, or those in another file."""
    place = Path(path).expanduser()
    beside = notes_of(place) if notes is None else Path(notes).expanduser()
    if not place.is_file():
        raise MissingData(f"{place}: no such file; check the path")
    if not has_text(beside):
        raise MissingNotes.of(str(place), beside.name)
    return TableFile(place, TableNotes.read(beside), RawTable.read(place))


def notes_of(path: Path) -> Path:
    """Where the notes about a table are."""
    return path.with_name(f"{stem(path)}.toml")


def _some(words: Sequence[str]) -> str:
    return ", ".join(map(shown, words[:8])) + (", ..." if len(words) > 8 else "")


def draft(path: str | Path) -> str:
    """A TOML to correct: the notes about a table that has none beside it, else the space of one that has."""
    place = Path(path).expanduser()
    return open_table(place).space.to_toml() if has_text(notes_of(place)) else _drafted(RawTable.read(place))


def _drafted(table: RawTable) -> str:
    def text(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    split = next((name for name, column in table.columns.items() if _is_split(column)), None)
    columns = [column for name, column in table.columns.items() if name != split]
    named = [column for column in columns if column.name.lower() in ("label", "class", "target", "y")]
    label = (named or columns)[-1]
    missing = "?" if any("?" in column.words for column in columns if _numbers(column, "?")) else None
    missing = "" if any("" in column.words for column in columns) else missing
    words = [column for column in columns if column is not label and not _numbers(column, missing)]
    drop = [column.name for column in words if len(column.words) > MOST_WORDS]
    lines = [f"label = {text(label.name)}  # is this the class?", f"drop = {text(drop)}"]
    lines += [f"missing = {text(missing)}  # rows that have it are left out"] if missing is not None else []
    if split is not None:
        parts = table.columns[split].words
        fit = [f"fit = {text(part)}" for part in parts if part.lower().startswith("train")]
        tested = next((part for part in parts if part.lower() == "test"), parts[-1])
        lines += ["", "[split]", f"column = {text(split)}", f"part = {text(tested)}", *fit]
    lines += ["", "[categories]"]
    for column in words:
        if column.name not in drop:
            found = sorted(column.words[word] for word in column.used() if column.words[word] != missing)
            for word in (column.name, *found):
                check_name(word, f"{table.where}: a word of column {column.name!r}")
            lines.append(f"{text(column.name)} = {text(found)}")
    return "\n".join(lines) + "\n"


def _is_split(column: TextColumn) -> bool:
    return {word.lower() for word in column.words} <= {"train", "test", "valid", "validation", "val"}


def _numbers(column: TextColumn, missing: str | None) -> bool:
    """Whether a column holds numbers, and perhaps what stands for a missing one."""
    kinds = [column.is_number(word) for word in column.used() if column.words[word] != missing]
    return bool(kinds) and all(kinds)
