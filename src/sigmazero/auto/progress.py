"""Say how far a cascade is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sigmazero.auto.members import most_queries
from sigmazero.auto.result import CascadeResult
from sigmazero.run.progress import Advance, bar, ignore, to_stderr


class Progress:
    """Count queries against the most that the cascade can make: every sample through every attack.

    A sample that an attack need not try moves the bar by all the queries it saves.
    """

    def __init__(self, found: CascadeResult) -> None:
        self.most = [found.cascade.draws * most_queries(run.attack, found.problem) for run in found.runs]
        self.left = self.total = float(len(found) * sum(self.most))
        self.found, self.place, self.done, self.rows = found, 0, 0.0, 0
        self.advance: Advance = ignore

    def begin(self, place: int, rows: int) -> None:
        """Note that the attack at a place begins, and on how many samples."""
        self.place, self.rows, self.done = place, rows, 0.0
        self._move(self.left - rows * sum(self.most[place:]))

    def __call__(self, rows: float) -> None:
        """Note that the attack is through with some samples."""
        self.done += rows
        self._move(rows * self.most[self.place])

    def _move(self, queries: float) -> None:
        self.left -= queries
        self.advance(queries)

    @property
    def words(self) -> str:
        """Return the attack at work, how far it is, and how many samples are left."""
        at = f"{self.found.members[self.place]}, {self.done:.0f} of {self.rows} samples"
        if self.found.eps is None:
            return at
        left = self.found.not_fooled(self.found.eps)[1]
        return f"{at}; {left} of {len(self.found)} not fooled so far"


@contextmanager
def shown(found: CascadeResult, show: bool) -> Iterator[Progress]:
    """Yield the progress of a cascade, and show it inside the block."""
    progress = Progress(found)
    title, words = f"SparseAutoAttack {found.cascade}", lambda: progress.words
    with bar(title, progress.total, show, "queries", words, to_stderr) as advance:
        progress.advance = advance
        yield progress
