"""How far a run is, over all workers: for the terminal, and in the store for `sigmazero status`."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from sigmazero.store.facts import CellInfo

WINDOW = 60.0  # seconds over which the speed is taken
LINES = 8  # workers that have a line of their own on a terminal
NOTED = 2.0  # seconds between two notes in the store


@dataclass
class WorkerState:
    """What a worker does, and how many rows it brought; `cell` is the key of the cell it is at, and `what` its name."""

    state: str = "starting"
    place: str = ""
    cell: str = ""
    what: str = ""
    rows: int = 0

    def begin(self, cell: CellInfo) -> None:
        """It is at a cell from now on."""
        self.state, self.cell, self.what = "working", cell.key, f"{cell.attack} against {cell.model}"

    def end(self, state: str) -> None:
        """It is at none."""
        self.state, self.cell, self.what = state, "", ""


@dataclass
class Crew:
    """The workers of a run by number, and its speed."""

    total: int
    workers: dict[int, WorkerState] = field(default_factory=dict)
    done: int = 0
    _marks: deque[tuple[float, int]] = field(default_factory=deque)
    _noted: float = 0.0

    def __post_init__(self) -> None:
        """The clock starts."""
        self._marks.append((time.monotonic(), 0))

    def advance(self, worker: int, rows: int) -> None:
        """Rows of a worker are stored."""
        self.done += rows
        self.workers[worker].rows += rows
        now = time.monotonic()
        self._marks.append((now, self.done))
        while len(self._marks) > 2 and now - self._marks[0][0] > WINDOW:
            self._marks.popleft()

    def speed(self) -> float | None:
        """Rows per second of all workers, lately; None before the first are stored."""
        began, before = self._marks[0]
        seconds = time.monotonic() - began
        return (self.done - before) / seconds if self.done and seconds > 0 else None

    def time_left(self, work: float) -> float | None:
        """Seconds until everything is done, if one worker needs so many; None before the first rows are stored."""
        return work / max(self._counts()["working"], 1) if self.done else None

    def due(self) -> bool:
        """Whether it is time for another note in the store."""
        if time.monotonic() - self._noted < NOTED:
            return False
        self._noted = time.monotonic()
        return True

    def words(self) -> str:
        """A line for each worker, or for each state if they are many."""
        if len(self.workers) > LINES:
            return ", ".join(f"{count} {state}" for state, count in self._counts().items())
        return "\n".join(
            f"{number} {one.state} {one.what} ({one.rows} rows)" for number, one in sorted(self.workers.items())
        )

    def _counts(self) -> Counter[str]:
        return Counter(one.state for one in self.workers.values())

    def note(self, work: float) -> dict[str, Any]:
        """All of it, as a store keeps it; `work` is what is left, in seconds of one worker."""
        return {
            "cells": sorted({one.cell for one in self.workers.values() if one.cell}),
            "rows": self.done,
            "of": self.total,
            "speed": self.speed(),
            "left": self.time_left(work),
            "workers": [
                {"worker": number, "state": one.state, "place": one.place, "what": one.what, "rows": one.rows}
                for number, one in sorted(self.workers.items())
            ],
        }
