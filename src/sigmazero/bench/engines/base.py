"""What an engine is: it starts workers, hands them tasks, and passes on what they say.

Everything else is the same for all engines: what is a worker's next task (`bench.units`), what becomes of its facts and
of its death (`bench.drive`), and what a worker does with a task (`bench.engines.hand`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sigmazero.bench.cells import Cell
from sigmazero.bench.units import Mask
from sigmazero.bench.worker import Attacked


@dataclass(frozen=True)
class Task:
    """A unit as it travels: the cell, a span of its rows, which rows of the cell are not wanted (as bits).

    `examine` asks what the doctor says of the model as well, and what it answers to a few clean rows.
    """

    cell: Cell
    start: int
    stop: int
    known: bytes
    examine: bool = False

    @staticmethod
    def pack(known: Mask) -> bytes:
        """Rows as bits."""
        return np.packbits(known).tobytes()

    def mask(self) -> Mask:
        """Which rows of the cell are not wanted."""
        return np.unpackbits(np.frombuffer(self.known, np.uint8), count=self.cell.info.rows).astype(np.bool_)


@dataclass(frozen=True)
class Ready:
    """The first sign of life: where and with what the worker computes, and the hash of the code it runs."""

    place: str
    provenance: dict[str, Any]
    code: str


@dataclass(frozen=True)
class Examined:
    """What the doctor says of a cell's model, and its answers to a few clean rows if it has steady ones."""

    findings: list[dict[str, str]]
    answers: NDArray[np.float64] | None


@dataclass(frozen=True)
class Finished:
    """The task is done, and everything it brought was said."""


@dataclass(frozen=True)
class Raised:
    """The task ended with an error: where it came from, and its first line."""

    told: str
    line: str


@dataclass(frozen=True)
class Gone:
    """The worker is no more: why, and the last lines it printed."""

    reason: str
    log: str = ""


Message = Ready | Examined | Attacked | Finished | Raised | Gone


class Engine(Protocol):
    """Workers, known by their numbers. One that is gone may be opened again.

    A worker is sent a task only when it is ready for one: after `Ready`, and after `Finished` or `Raised`.
    """

    @property
    def size(self) -> int:
        """How many workers to keep."""

    @property
    def whole(self) -> bool:
        """Whether a task is a whole cell, and each batch is to be stored before the next."""

    def open(self, worker: int) -> None:
        """Begin to start a worker; it says `Ready`, or `Gone`."""

    def send(self, worker: int, task: Task) -> None:
        """Hand a task to a worker; it says what the task brings, then `Finished` or `Raised`, or `Gone`."""

    def wait(self, seconds: float) -> list[tuple[int, Message]]:
        """What workers said; waits for as long as nobody says anything."""

    def close(self) -> None:
        """End all workers at once, whatever they do."""
