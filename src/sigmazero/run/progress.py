"""Say how far a run is: a bar on a terminal, a line every 30 seconds elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sigmazero.core.messages import visible
from sigmazero.run.search import Advance as Advance
from sigmazero.run.search import ignore as ignore

LINE_EVERY = 30.0  # seconds


class Pace:
    """Predict the time left from the time taken so far."""

    def __init__(self, total: float) -> None:
        self.total, self.done, self._began = total, 0.0, time.monotonic()

    def advance(self, amount: float) -> None:
        """Count what was done."""
        self.done += amount

    def left(self) -> float | None:
        """Return the seconds left; None before anything is done."""
        return (time.monotonic() - self._began) * (self.total / self.done - 1) if self.done else None


@contextmanager
def bar(
    title: str,
    total: float,
    show: bool = True,
    unit: str = "rows",
    words: Callable[[], str] | None = None,
    say: Callable[[str], None] | None = None,
) -> Iterator[Advance]:
    """Yield a function that moves the bar; it does nothing if `show` is off.

    words   returns a text to show under the title, whenever the bar moves
    say     takes the lines where stderr is no terminal; without it nothing is shown there
    """
    if not show or not sys.stderr.isatty():
        with _lines(title, total, words or str, say if show else None) as advance:
            yield advance
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[speed]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(visible(title), total=total, speed="")

        def advance(amount: float) -> None:
            progress.advance(task, amount)
            speed = progress.tasks[0].speed
            shown = title if words is None else f"{title}\n{words()}"
            progress.update(task, description=visible(shown), speed=f"{speed:.1f} {unit}/s" if speed else "")

        yield advance


def to_stderr(line: str) -> None:
    """Write a line to stderr at once."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@contextmanager
def _lines(title: str, total: float, words: Callable[[], str], say: Callable[[str], None] | None) -> Iterator[Advance]:
    """Pass a line to `say` from time to time."""
    pace, over = Pace(total), threading.Event()

    def lines() -> None:
        while say is not None and not over.wait(LINE_EVERY):
            left = pace.left()
            soon = "" if left is None else f", {left / 60:.0f} min left" if left > 90 else f", {left:.0f} s left"
            say(" ".join(filter(None, (f"{title}:", words(), f"({100 * pace.done / max(pace.total, 1):.0f} %{soon})"))))

    if say is not None:
        threading.Thread(target=lines, daemon=True).start()
    try:
        yield pace.advance
    finally:
        over.set()
