"""Batches of a transaction that wait to be written together: a statement for all of them costs as much as for one."""

from __future__ import annotations

import sqlite3

from sigmazero.store.checksums import add, put
from sigmazero.store.reading import BatchRow, CellRow


class Waiting:
    """Batches, their facts, and what becomes of the cells they belong to.

    first   the number of the first batch
    """

    def __init__(self, first: int) -> None:
        self.next = first
        self._cells: dict[str, CellRow] = {}
        self._batches: list[tuple[str, BatchRow]] = []
        self._facts: list[tuple[int, bytes, bytes]] = []

    def cell(self, key: str) -> CellRow | None:
        """The cell as it will be, if something of it waits."""
        return self._cells.get(key)

    def add(self, cell: CellRow, batch: BatchRow, columns: bytes, changes: bytes) -> None:
        """Have a batch wait; the cell is as it was before it."""
        self._cells[cell.key] = cell._replace(stored=cell.stored + batch.size)
        self._batches.append((cell.key, batch))
        self._facts.append((batch.id, columns, changes))
        self.next = batch.id + 1

    def write(self, base: sqlite3.Connection) -> None:
        """Write everything, in the transaction that is open."""
        add(base, "batches", self._batches)
        base.executemany("INSERT INTO facts VALUES (?, ?, ?)", self._facts)
        for cell in self._cells.values():
            put(base, "cells", None, *cell)
