"""One progress bar, on terminals only."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sigmazero.core.messages import visible
from sigmazero.run.search import Advance as Advance
from sigmazero.run.search import ignore as ignore


@contextmanager
def bar(
    title: str, total: float, show: bool = True, unit: str = "rows", words: Callable[[], str] | None = None
) -> Iterator[Advance]:
    """Yield a function that moves the bar; it does nothing if `show` is off or stderr is not a terminal.

    `words` returns a text to show under the title, whenever the bar moves.
    """
    if not show or not sys.stderr.isatty():
        yield ignore
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
