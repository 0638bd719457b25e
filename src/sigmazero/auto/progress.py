"""Count how far a cascade is; `bench.progress.shown` shows it."""

from __future__ import annotations

import time
from collections.abc import Callable

from sigmazero.auto.members import most_queries
from sigmazero.auto.result import CascadeResult
from sigmazero.report.status import duration


class Progress:
    """Count the work in samples, by the most queries that are left, and predict the time left.

    A sample that an attack need not try saves all its queries.
    """

    def __init__(self, found: CascadeResult) -> None:
        self.found, self.total = found, len(found)
        self.place = self.rows = 0
        self.tried, self._asked = 0.0, 0.0
        self._most = [found.cascade.draws * most_queries(run.attack, found.problem) for run in found.runs]
        self._all = self._left = float(self.total * sum(self._most))
        self._began = time.monotonic()
        self.update: Callable[[], None] = lambda: None

    def begin(self, place: int, rows: int) -> None:
        """Note that the attack at a place begins, and on how many samples."""
        self.place, self.rows, self.tried = place, rows, 0.0
        self._left = float(rows * sum(self._most[place:]))
        self.update()

    def __call__(self, rows: float) -> None:
        """Note that the attack is through with some samples."""
        queries = rows * self._most[self.place]
        self.tried, self._asked, self._left = self.tried + rows, self._asked + queries, self._left - queries
        self.update()

    @property
    def done(self) -> int:
        """Return how many samples the work done is worth."""
        return round(self.total * (1 - self._left / max(self._all, 1)))

    @property
    def cell(self) -> str:
        """Return the attack at work, how far it is, and how many samples are not fooled."""
        at = f"{self.found.members[self.place]}, {self.tried:.0f} of {self.rows} samples"
        if self.found.eps is None:
            return at
        left = self.found.not_fooled(self.found.eps)[1]
        return f"{at}; {left} of {self.total} not fooled so far"

    def time_left(self) -> float | None:
        """Return the seconds until every sample is through; None before anything is measured."""
        return (time.monotonic() - self._began) * self._left / self._asked if self._asked else None

    def line(self) -> str:
        """Return the same in a line, with the time left."""
        return f"{self.cell}; time left {duration(self.time_left())} at most"
