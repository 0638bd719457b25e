"""Show how far a run is: a bar on a terminal, a line every 30 seconds elsewhere, a note in the store for `status`."""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sigmazero.bench.cells import Cell
from sigmazero.bench.forecast import queries
from sigmazero.bench.plan import ModelSpec
from sigmazero.core.messages import visible

WINDOW = 60.0  # seconds over which the speed is measured
NOTE_EVERY = 2.0  # seconds between two notes in the store
LINE_EVERY = 30.0  # seconds between two lines without a terminal


class Progress:
    """Count rows, and predict the time left.

    A row of a cell is expected to take its number of queries times the seconds of a query of the same model so far, or
    of any model before this one has been measured.
    """

    def __init__(self, cells: Sequence[Cell], rows: Sequence[int], workers: int = 1) -> None:
        self.cells, self.left, self.workers = cells, list(rows), max(workers, 1)
        self.total, self.done, self.cell = sum(rows), 0, ""
        self._queries = [queries(cell.question) for cell in cells]  # for a row
        self._seconds: defaultdict[ModelSpec, float] = defaultdict(float)  # spent on a model
        self._asked: defaultdict[ModelSpec, int] = defaultdict(int)  # queries in these seconds
        self._marks: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        self._noted = 0.0

    def begin(self, place: int) -> None:
        """Note the cell that a worker begins with."""
        info = self.cells[place].info
        self.cell = f"{info.attack} against {info.model} on {info.dataset}"

    def add(self, place: int, rows: int, seconds: float) -> None:
        """Count stored rows of a cell, and the seconds that a worker took for them."""
        self.done += rows
        self.left[place] -= rows
        model, now = self.cells[place].question.model, time.monotonic()
        self._seconds[model] += seconds
        self._asked[model] += rows * self._queries[place]
        self._marks.append((now, self.done))
        while len(self._marks) > 2 and now - self._marks[0][0] > WINDOW:
            self._marks.popleft()

    def drop(self, place: int, rows: int) -> None:
        """Leave out rows of a cell, because they failed."""
        self.left[place] -= rows

    def seconds_per_row(self, place: int) -> float | None:
        """Return the seconds that a worker needs for a row of a cell; None before anything is measured."""
        model = self.cells[place].question.model
        seconds, asked = self._seconds[model], self._asked[model]
        if not asked:
            seconds, asked = sum(self._seconds.values()), sum(self._asked.values())
        return seconds / asked * self._queries[place] if asked else None

    def time_left(self) -> float | None:
        """Return the seconds until all rows are done; None before anything is measured."""
        parts = [rows * (self.seconds_per_row(place) or 0.0) for place, rows in enumerate(self.left)]
        return sum(parts) / self.workers if self.done else None

    def speed(self) -> float | None:
        """Return the rows per second of the last minute, of all workers; None before the first are stored."""
        began, before = self._marks[0]
        seconds = time.monotonic() - began
        return (self.done - before) / seconds if self.done and seconds > 0 else None

    def line(self) -> str:
        """Return the cell, the rows done and the time left, in a line."""
        return f"{self.cell}: {self.done} of {self.total} rows, {_clock(self.time_left())} left"

    def note(self) -> dict[str, Any]:
        """Return the note in the store that `sigmazero status` shows."""
        more = {"speed": self.speed(), "left": self.time_left()}
        return {"cell": self.cell, "rows": self.done, "of": self.total, **more}

    def due(self) -> bool:
        """Return whether it is time for another note in the store."""
        if time.monotonic() - self._noted < NOTE_EVERY:
            return False
        self._noted = time.monotonic()
        return True


def _clock(seconds: float | None) -> str:
    """Return a time as h:mm:ss.

    >>> _clock(3725.2), _clock(None)
    ('1:02:05', 'unknown time')
    """
    if seconds is None:
        return "unknown time"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


@contextmanager
def shown(progress: Progress, title: str, show: bool, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Show progress inside the block, if `show`; yield a function to call whenever it changed."""
    if show and sys.stderr.isatty():
        with _bar(progress, title) as update:
            yield update
        return
    over = threading.Event()

    def lines() -> None:
        while not over.wait(LINE_EVERY):
            say(f"{title}: {progress.line()}")

    if show:
        threading.Thread(target=lines, daemon=True).start()
    try:
        yield lambda: None
    finally:
        over.set()


@contextmanager
def _bar(progress: Progress, title: str) -> Iterator[Callable[[], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[state]}"))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(visible(title), total=progress.total, state="")

        def update() -> None:
            state = f"{progress.done}/{progress.total} rows, {_clock(progress.time_left())} left"
            bar.update(task, completed=progress.done, description=visible(f"{title}\n{progress.cell}"), state=state)

        yield update
