"""This process: one worker, which takes a step whenever the driver waits."""

from __future__ import annotations

from collections.abc import Iterator

from sigmazero.bench.engines.base import Message, Task
from sigmazero.bench.engines.hand import Hand
from sigmazero.bench.worker import Worker


class Local:
    """One worker in this process."""

    size, whole = 1, True

    def __init__(self, worker: Worker) -> None:
        self._hand = Hand(worker)
        self._said: Iterator[Message] = iter(())

    def open(self, worker: int) -> None:
        """It is here already."""
        self._said = iter([self._hand.ready()])

    def send(self, worker: int, task: Task) -> None:
        """Begin a task."""
        self._said = self._hand.work(task)

    def wait(self, seconds: float) -> list[tuple[int, Message]]:
        """The next batch, however long it takes."""
        return [(0, next(self._said))]

    def close(self) -> None:
        """Nothing runs between two calls."""
        self._said = iter(())
