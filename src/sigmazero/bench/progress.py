"""Count how far a run is, for the bar and for `sigmazero status`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sigmazero.bench.cells import Cell
from sigmazero.bench.forecast import queries
from sigmazero.run.progress import Advance, Pace, ignore

NOTE_EVERY = 2.0  # seconds between two notes in the store


class Progress:
    """Count rows for people and queries for the time left: rows of one cell may take far longer than others."""

    def __init__(self, cells: Sequence[Cell], rows: Sequence[int]) -> None:
        self.cells, self.total, self.done, self.cell = cells, sum(rows), 0, ""
        self._queries = [queries(cell.question) for cell in cells]  # for a row
        self.pace = Pace(sum(map(int.__mul__, rows, self._queries)))
        self.advance: Advance = ignore
        self._began, self._noted = time.monotonic(), 0.0

    def begin(self, place: int) -> None:
        """Note the cell that a worker begins with."""
        info = self.cells[place].info
        self.cell = f"{info.attack} against {info.model} on {info.dataset}"
        self.advance(0)

    def add(self, place: int, rows: int, failed: bool = False) -> None:
        """Count rows of a cell that were stored or have failed."""
        self.done += 0 if failed else rows
        self.pace.advance(rows * self._queries[place])
        self.advance(rows * self._queries[place])

    @property
    def words(self) -> str:
        """Return the cell and the rows done."""
        return f"{self.cell}: {self.done} of {self.total} rows"

    def note(self) -> dict[str, Any]:
        """Return the note in the store that `sigmazero status` shows."""
        speed = self.done / (time.monotonic() - self._began) if self.done else None
        return {"cell": self.cell, "rows": self.done, "of": self.total, "speed": speed, "left": self.pace.left()}

    def due(self) -> bool:
        """Return whether it is time for another note in the store."""
        if time.monotonic() - self._noted < NOTE_EVERY:
            return False
        self._noted = time.monotonic()
        return True
