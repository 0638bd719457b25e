"""Copy what can be read of a damaged store to a new one.

A row is copied if it has the checksum that it was written with, wherever in the file it is found: so everything in the
new store is as it was written. The damaged file is read as bytes, and nothing is written to it or beside it.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sigmazero.store.batches import unpack_places
from sigmazero.store.checksums import SIZE, TABLES, blob_sum, is_whole, put
from sigmazero.store.database import StoreError
from sigmazero.store.facts import CellInfo
from sigmazero.store.fresh import fresh
from sigmazero.store.log import beside, misfit
from sigmazero.store.pages import rows, views
from sigmazero.store.reading import BatchRow, CellRow
from sigmazero.store.schema import create

OWNED = [table for table, (_, columns) in TABLES.items() if "cell" in columns]
GROWING = {"cells": CellRow._fields.index("stored"), "proofs": TABLES["proofs"][1].index("least")}
WORDS = {
    "cells": "descriptions of cells, with all that was stored of them",
    "runs": "notes on where and with what a run was made",
    "traces": "traces",
    "doctor": "lists of what the doctor found",
    "answers": "sets of answers that the model is recognised by",
    "inputs": "sets of inputs",
    "failures": "notes on rows that failed",
    "proofs": "lower bounds that were proved",
    "digests": "lists of digests of rows",
}


@dataclass(frozen=True)
class CellCopy:
    """How much of a cell was copied: so many of the rows that it had."""

    info: CellInfo
    rows: int
    of: int


@dataclass
class Repair:
    """What was copied, cell by cell, and in words what was lost besides their rows."""

    cells: list[CellCopy] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether nothing was lost."""
        return not self.lost and all(one.rows == one.of for one in self.cells)


@dataclass
class Salvage:
    """The rows of each table that have their checksums, by what they are found by, and what else the file says."""

    tables: dict[str, dict[Any, tuple[Any, ...]]] = field(default_factory=lambda: {table: {} for table in TABLES})
    counts: dict[str, int] = field(default_factory=dict)  # how many rows there should be, by table

    def add(self, table: str, row: tuple[Any, ...]) -> None:
        """Keep a row; of two states of a cell the one that knows of more rows, of two proofs the one that says more."""
        known, name = self.tables[table], row[0] if TABLES[table][0] == 1 else row[: TABLES[table][0]]
        if name not in known or (table in GROWING and row[GROWING[table]] > known[name][GROWING[table]]):
            known[name] = row


def repair(path: Path, new: Path) -> Repair:
    """Copy what can be read of a store to a new file, and say what was lost."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no store {path}")
    if new.exists():
        raise StoreError(f"{new} exists, and nothing is written over it; name another file")
    seen = views(path)
    found = _find(seen)
    if not found.tables["cells"]:
        raise StoreError(
            f"{path} has no description of a cell with its checksum: it is no store, or nothing of it is left. "
            "Nothing was written"
        )
    done = Repair()
    if why := misfit(path):
        done.lost.append(f"perhaps what {beside(path).name} had to add: it seems to be of another copy ({why})")
    with fresh(new, f"copied from {path}") as base:
        _copy(base, found, dict(_blobs(seen, found)), done)
    return done


def _layout() -> dict[str, list[tuple[str, str, bool]]]:
    """The columns of each table in the order of the file: name, kind, and whether it is the row's own number."""
    base = sqlite3.connect(":memory:", isolation_level=None)
    create(base)
    found = {}
    for table in TABLES:
        columns = base.execute("SELECT name, type, pk FROM pragma_table_info(?)", (table,)).fetchall()
        single = sum(pk > 0 for *_, pk in columns) == 1
        found[table] = [(name, kind, single and pk > 0 and kind == "INTEGER") for name, kind, pk in columns]
    base.close()
    return found


def _find(seen: list[tuple[bytearray, int]]) -> Salvage:
    """Every row with the checksum of one of the tables."""
    layout, found, owned = _layout(), Salvage(), []
    for number, values in (row for view in seen for row in rows(*view)):
        if len(values) == 3 and values[0] in TABLES and isinstance(values[1], int) and isinstance(values[2], bytes):
            found.counts[values[0]] = max(values[1], found.counts.get(values[0], 0))
        for table, columns in layout.items():
            if len(columns) != len(values) or not isinstance(values[-1], bytes) or len(values[-1]) != SIZE:
                continue
            named = {
                name: number if own else float(value) if kind == "REAL" and isinstance(value, int) else value
                for (name, kind, own), value in zip(columns, values, strict=True)
            }
            row = tuple(named[name] for name in (*TABLES[table][1], "checksum"))
            if table in OWNED:
                owned.append((table, row))
            elif is_whole(table, None, row):
                found.add(table, row[:-1])
    keys = {number: CellRow(*row).key for number, row in found.tables["cells"].items()}
    for table, row in owned:
        key = keys.get(row[TABLES[table][1].index("cell")])
        if key is not None and is_whole(table, key, row):
            found.add(table, row[:-1])
    return found


def _blobs(seen: list[tuple[bytearray, int]], found: Salvage) -> Iterator[tuple[int, tuple[bytes, bytes]]]:
    """The facts of the batches that were found, by the batch's number."""
    wanted = {number: BatchRow(*row) for number, row in found.tables["batches"].items()}
    for number, values in (row for view in seen for row in rows(*view)):
        batch = wanted.get(number)
        if batch is None or len(values) != 3 or not all(isinstance(value, bytes) for value in values[1:]):
            continue
        if (blob_sum(values[1]), blob_sum(values[2])) == (batch.columns_sum, batch.changes_sum):
            yield number, (values[1], values[2])


def _copy(base: sqlite3.Connection, found: Salvage, blobs: dict[int, tuple[bytes, bytes]], done: Repair) -> None:
    tables = found.tables
    for row in (CellRow(*cell) for cell in sorted(tables["cells"].values())):
        batches = [BatchRow(*each) for each in tables["batches"].values() if each[1] == row.id and each[0] in blobs]
        placed = np.zeros(0, np.int64)
        for batch in sorted(batches, key=lambda each: each.start):
            places = unpack_places(batch.start, batch.stop, batch.places)
            if len(np.intersect1d(placed, places)):
                continue  # the same rows from an older state of the file
            placed = np.concatenate([placed, places])
            put(base, "batches", row.key, *batch)
            base.execute("INSERT INTO facts VALUES (?, ?, ?)", (batch.id, *blobs[batch.id]))
            if batch.run not in tables["runs"]:
                tables["runs"][batch.run] = (batch.run, "{}")
                done.lost.append(f"where and with what run {batch.run} was made")
        put(base, "cells", None, *row._replace(stored=len(placed)))
        done.cells.append(CellCopy(CellInfo.parse(row.info), len(placed), row.stored))
    for table in ("runs", "traces", "doctor", "answers", "inputs", "failures", "proofs", "digests"):
        for values in tables[table].values():
            key = CellRow(*tables["cells"][values[0]]).key if table in OWNED else None
            put(base, table, key, *values)
    if "cells" not in found.counts:
        done.lost.append("the number of cells there were, so that nobody can say whether all are here")
    for table, words in WORDS.items():
        if (lacking := found.counts.get(table, 0) - len(tables[table])) > 0:
            done.lost.append(f"{lacking} {words}")
