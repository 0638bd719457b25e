"""What a worker is asked for at a time: a span of a cell's rows, cut when a worker is free.

Spans are sized by the speed measured so far, so that uneven costs balance and nobody waits long for the last one. How
a cell is cut changes none of its facts: see `Worker.attack`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sigmazero.bench.cells import Cell

Mask = NDArray[np.bool_]

SECONDS = 10.0  # of work in a unit, about


@dataclass(frozen=True)
class WorkUnit:
    """Rows of a cell, from `start` up to `stop`; `tries` counts the workers that it cost so far."""

    cell: int
    start: int
    stop: int
    tries: int = 0

    def after_loss(self, size: int) -> list[WorkUnit]:
        """The same rows again, a batch at a time: what kills its worker should take few rows along."""
        return [
            WorkUnit(self.cell, start, min(start + size, self.stop), self.tries + 1)
            for start in range(self.start, self.stop, size)
        ]


class Backlog:
    """What is still to be handed out.

    wanted      which rows of each cell are to be run
    workers     how many share the work
    whole       hand out whole cells in their order: for one worker that sees each batch stored before the next
    estimate    how long a row of a cell may take, compared with others, until its speed is measured
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        wanted: Sequence[Mask],
        workers: int = 1,
        *,
        whole: bool = False,
        estimate: Callable[[Cell], float] | None = None,
    ) -> None:
        self.cells, self.whole, self.workers = cells, whole, workers
        self._rows = [np.flatnonzero(mask) for mask in wanted]  # not handed out yet
        self._again: list[WorkUnit] = []
        self._last: dict[Hashable, int] = {}
        self._guess = [(estimate or by_steps)(cell) for cell in cells]
        self._spent = np.zeros((len(cells), 2))  # seconds and rows, as measured

    def take(self, worker: Hashable) -> WorkUnit | None:
        """The next unit for a worker, near what it did before; None if everything is handed out."""
        if self._again:
            unit = self._again.pop()
        else:
            left = [place for place, rows in enumerate(self._rows) if len(rows)]
            if not left:
                return None
            chosen = left[0] if self.whole else max(left, key=lambda place: self._worth(place, worker))
            unit = self._cut(chosen)
        self._last[worker] = unit.cell
        return unit

    def _worth(self, place: int, worker: Hashable) -> tuple[int, float]:
        """How well a cell suits a worker: what it has loaded first, then what takes long and has few workers."""
        before, q = self._last.get(worker), self.cells[place].question
        near = 0
        if before is not None:
            had = self.cells[before].question
            near = (before == place) + ((had.model, had.data) == (q.model, q.data)) + (had.model == q.model)
        others = sum(
            self.cells[last].question.model == q.model for other, last in self._last.items() if other != worker
        )
        return near, len(self._rows[place]) * self.pace(place) / (1 + others)

    def _cut(self, place: int) -> WorkUnit:
        rows, size = self._rows[place], self.cells[place].question.batch_size
        count = len(rows)
        if not self.whole:
            seconds, _ = self._spent[place]
            fair = math.ceil(count / self.workers)  # so that the last units end together
            count = min(fair, max(size, int(SECONDS / self.pace(place)))) if seconds else size
        stop = -(-(int(rows[min(count, len(rows)) - 1]) + 1) // size) * size
        self._rows[place] = rows[rows >= stop]
        return WorkUnit(place, int(rows[0]), min(stop, self.cells[place].info.rows))

    def again(self, units: Sequence[WorkUnit]) -> None:
        """Hand these out once more, before anything else."""
        self._again += reversed(units)

    @property
    def empty(self) -> bool:
        """Whether everything is handed out."""
        return not self._again and not any(len(rows) for rows in self._rows)

    def refill(self, place: int, rows: Mask) -> None:
        """Hand out these rows of a cell once more."""
        self._rows[place] = np.flatnonzero(rows)

    def drop(self, place: int) -> None:
        """Hand out nothing more of a cell."""
        self._rows[place] = self._rows[place][:0]
        self._again = [unit for unit in self._again if unit.cell != place]

    def measured(self, place: int, seconds: float, rows: int) -> None:
        """Note what rows of a cell took."""
        self._spent[place] += (seconds, rows)

    def pace(self, place: int) -> float:
        """Seconds for a row of a cell: as measured, or as measured on others and estimated for this one."""
        seconds, rows = self._spent[place]
        if rows:
            return float(max(seconds / rows, 1e-9))
        guessed = float(np.dot(self._spent[:, 1], self._guess))
        scale = float(self._spent[:, 0].sum()) / guessed if guessed else 1.0
        return max(self._guess[place] * scale, 1e-9)


def by_steps(cell: Cell) -> float:
    """A first guess: a step of any attack takes as long as one of another."""
    return float(cell.question.attack.steps)
