"""How a foreign model is asked: in batches it can take, not too fast, again where it fails, and counted exactly."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sigmazero.core.messages import one_line
from sigmazero.core.model import Stopped
from sigmazero.core.problem import integer

ArrayRows = NDArray[Any]
Given = TypeVar("Given")
_MOST_WAIT = 60.0  # seconds between two attempts, however often it failed


class OutOfQueries(Stopped):
    """`max_queries` rows were asked: the model is asked no more."""


class ScorerFailed(Stopped):
    """A call failed, and so did every repetition of it; without repetitions, a line or a file (`OSError`) failed."""


@dataclass
class Queries:
    """What a model was asked so far.

    asked    rows that went to the model and were answered
    cached   rows that were answered from the cache instead
    calls    calls that were answered, each with one row or more
    retried  calls that failed and were made again
    """

    asked: int = 0
    cached: int = 0
    calls: int = 0
    retried: int = 0

    def __str__(self) -> str:
        """All of them, in words."""
        return ", ".join(f"{getattr(self, each.name)} {each.name}" for each in fields(self))


@dataclass(frozen=True)
class Terms:
    """On which terms a model may be asked; see `wrap`."""

    max_batch: int | None = None
    max_queries: int | None = None
    rate: float | None = None
    retries: int = 0
    wait: float = 1.0
    cache: bool = False

    def __post_init__(self) -> None:
        """Refuse what no model can be asked on."""
        for name, least in (("max_batch", 1), ("max_queries", 0), ("retries", 0)):
            given = getattr(self, name)
            if given is not None and not (integer(given) and given >= least):
                raise ValueError(f"{name}={given!r} must be a whole number, {least} or more")
        if self.rate is not None and not self.rate > 0:
            raise ValueError(f"rate={self.rate!r} must be more than 0 calls a second (None for no limit)")
        if not self.wait >= 0:
            raise ValueError(f"wait={self.wait!r} must be 0 seconds or more")


class Clock:
    """Seconds that pass, and waiting; tests bring one of their own."""

    def now(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@dataclass
class Asking:
    """Asks on some terms, and counts. One object belongs to one model; its calls come one after the other."""

    terms: Terms
    clock: Clock = field(default_factory=Clock)
    queries: Queries = field(default_factory=Queries)
    _known: dict[bytes, ArrayRows] = field(default_factory=dict)
    _next: float = 0.0  # the earliest moment of the next call

    def ask(self, x: ArrayRows, model: Callable[[ArrayRows], ArrayRows]) -> ArrayRows:
        """The answers to some rows, one each, in their order."""
        if not self.terms.cache:
            return self._sent(x, model)
        keys = [hashlib.sha256(f"{row.dtype} {row.shape} ".encode() + row.tobytes()).digest() for row in x]
        new = list({key: place for place, key in reversed(list(enumerate(keys))) if key not in self._known}.values())
        if new:
            new.sort()
            answers = self._sent(x[new], model)
            self._known |= {keys[place]: answer for place, answer in zip(new, answers, strict=True)}
        self.queries.cached += len(x) - len(new)
        return np.stack([self._known[key] for key in keys])

    def spans(self, rows: int) -> list[slice]:
        """So many rows in calls of at most `max_batch`."""
        most = self.terms.max_batch or max(rows, 1)
        return [slice(start, min(start + most, rows)) for start in range(0, rows, most)]

    def call(self, rows: int, answer: Callable[[], Given]) -> Given:
        """One call about so many rows: in its time, again if it fails, and counted once it is answered."""
        most, queries = self.terms.max_queries, self.queries
        if most is not None and queries.asked + rows > most:
            raise OutOfQueries(f"max_queries={most}: {queries.asked} were asked, and {rows} more are not allowed")
        for attempt in range(self.terms.retries + 1):
            self._wait_for_turn()
            try:
                found = answer()
            except Exception as error:  # whatever a service, or what stands before it, makes of a call
                if attempt == self.terms.retries:
                    if attempt == 0 and not isinstance(error, OSError):
                        raise  # a mistake in a function, which is better seen where it is
                    often = f"{attempt + 1} times in a row" if attempt else "once, and retries=0"
                    raise ScorerFailed(
                        f"the model failed {often} ({type(error).__name__}: {one_line(error)})"
                    ) from error
                queries.retried += 1
                self.clock.sleep(min(self.terms.wait * 2**attempt, _MOST_WAIT))
            else:
                queries.asked += rows
                queries.calls += 1
                return found
        raise AssertionError("a call is answered or raises")

    def _sent(self, x: ArrayRows, model: Callable[[ArrayRows], ArrayRows]) -> ArrayRows:
        parts = [self.call(span.stop - span.start, lambda span=span: model(x[span])) for span in self.spans(len(x))]  # type: ignore[misc]
        return np.concatenate(parts) if parts else model(x)

    def _wait_for_turn(self) -> None:
        if self.terms.rate is None:
            return
        now = self.clock.now()
        if now < self._next:
            self.clock.sleep(self._next - now)
        self._next = max(now, self._next) + 1 / self.terms.rate
