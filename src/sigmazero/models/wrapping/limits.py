"""`sz.limit`: call a model in batches that it takes, at a limited rate, with retries, and count its queries."""

import hashlib
import time
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from sigmazero.core.inputs import hint
from sigmazero.core.messages import one_line
from sigmazero.core.model import ABILITIES, Ability, Stopped, ability_of, in_eval_mode, logits_in, suffices
from sigmazero.core.oracle import Model
from sigmazero.core.problem import integer
from sigmazero.models.wrapping.identity import KnownModel, hash_model

MAX_WAIT = 60.0  # seconds between two attempts, however often a call failed
LEAST = 6  # queries of a row: three by the doctor, the clean check, one try and its verification


class OutOfQueries(Stopped):
    """The model has answered `max_queries` rows, and is called no more."""


class ScorerFailed(Stopped):
    """A call and all its repetitions failed; without repetitions only failures of connections and files (`OSError`)."""


@dataclass
class Queries:
    """Queries of a limited model so far.

    asked    rows that the model answered
    cached   rows that were answered from the cache instead
    calls    calls that were answered
    retried  calls that failed and were made again
    """

    asked: int = 0
    cached: int = 0
    calls: int = 0
    retried: int = 0

    def __str__(self) -> str:
        """List all of them."""
        return ", ".join(f"{getattr(self, each.name)} {each.name}" for each in fields(self))


class LimitedModel(KnownModel):
    """A model that is called within limits; `limit` makes one and explains them.

    ability     what it shows of the model: "gradients", "scores" or "labels"
    queries     how many rows were asked, answered from the cache, and so on
    batch_size  of a run: what is lost when the model stops answering is one batch
    """

    batch_size: int | None = None
    max_queries: int | None = None
    rate: float | None = None
    retries = 0
    wait = 1.0

    def __init__(self, model: Model, ability: Ability, cache: bool) -> None:
        super().__init__()
        self._model = (model,)  # hidden from torch: a copy of it would not be counted
        self.ability, self.queries, self.classes = ability, Queries(), getattr(model, "classes", None)
        self._known: dict[bytes, Tensor] | None = {} if cache else None
        self._next = 0.0  # the earliest moment of the next call

    @property
    def model(self) -> Model:
        """Return the model itself."""
        return self._model[0]

    @property
    def left(self) -> int | None:
        """Return how many more rows it answers; None if there is no limit."""
        if self.max_queries is None:
            return None
        return (self.max_queries - self.queries.asked) // int(getattr(self.model, "cost", 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return scores."""
        if x.is_cuda and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("a limited model counts its questions, which a recording would not do")
        if self.ability == "gradients" and torch.is_grad_enabled() and x.requires_grad:
            return self._in_parts(x)
        with torch.no_grad():
            found = self._in_parts(x) if self._known is None else self._cached(x, self._known)
        if self.ability != "labels":
            return found
        return torch.zeros_like(found, dtype=torch.float64).scatter(1, found.argmax(1, keepdim=True), 1.0)

    def _cached(self, x: Tensor, known: dict[bytes, Tensor]) -> Tensor:
        rows = x.detach().cpu().contiguous()
        head = f"{x.dtype} {tuple(x.shape[1:])} ".encode()
        keys = [hashlib.sha256(head + row.numpy().tobytes()).digest() for row in rows]
        first = {key: place for place, key in reversed(list(enumerate(keys))) if key not in known}
        if new := sorted(first.values()):
            known |= {keys[place]: answer for place, answer in zip(new, self._in_parts(x[new]), strict=True)}
        self.queries.cached += len(x) - len(new)
        return torch.stack([known[key] for key in keys]).to(x.device)

    def _in_parts(self, x: Tensor) -> Tensor:
        parts = [self._call(part) for part in torch.split(x, self.batch_size or max(len(x), 1))]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _call(self, x: Tensor) -> Tensor:
        """Make one call: wait for the rate limit, repeat it when it fails, count it when it succeeds."""
        cost, attempt = len(x) * getattr(self.model, "cost", 1), 1
        if self.max_queries is not None and self.queries.asked + cost > self.max_queries:
            raise OutOfQueries(
                f"max_queries={self.max_queries}: {self.queries.asked} were asked, {cost} more are too many; "
                "allow more, or attack fewer rows or with fewer queries each"
            )
        parameter = next(self.model.parameters(), None) if isinstance(self.model, nn.Module) else None
        while True:
            if self.rate is not None:
                now = time.monotonic()
                if now < self._next:
                    time.sleep(self._next - now)
                self._next = max(now, self._next) + 1 / self.rate
            try:
                with in_eval_mode(self.model):
                    answer = self.model(x if parameter is None else x.to(parameter.device))
                break
            except Exception as error:  # whatever a service, or the code before it, makes of a call
                if not self.retries and not isinstance(error, OSError):
                    raise  # a mistake in a function
                if attempt > self.retries:
                    why = f"{type(error).__name__}: {one_line(error)}"
                    raise ScorerFailed(
                        f"{attempt} calls of the model failed, retries={self.retries} ({why})"
                    ) from error
                self.queries.retried += 1
                time.sleep(min(self.wait * 2 ** (attempt - 1), MAX_WAIT))
                attempt += 1
        self.queries.asked += cost
        self.queries.calls += 1
        return logits_in(answer).to(x.device)

    def content(self) -> str:
        """Return the ability and the model inside."""
        return f"{self.ability} {hash_model(self.model)}"

    def __deepcopy__(self, memo: dict[int, Any]) -> "LimitedModel":
        """Return the same module: what is asked of a copy counts too."""
        del memo
        return self

    def extra_repr(self) -> str:
        """Show the model; limits do not make it another one, and are left out."""
        return f"{type(self.model).__name__}, ability={self.ability!r}"


def limit(
    model: Any,
    *,
    ability: Ability | None = None,
    max_batch: int | None = None,
    max_queries: int | None = None,
    rate: float | None = None,
    retries: int = 0,
    wait: float = 1.0,
    cache: bool = False,
) -> LimitedModel:
    """Return a model that is called within limits and counts its queries: a network, a service, a forest.

    ability      show less than there is: "scores" or "labels"
    max_batch    the most rows in one call
    max_queries  the most rows in all; then `OutOfQueries` ends a run, which keeps the batches that are done
    rate         the most calls a second
    retries      how often a failed call is made again, after `wait` seconds, then twice as many, at most a minute
    cache        answer rows that came before from memory

    >>> model = limit(torch.nn.Linear(4, 2), max_queries=3)
    >>> model(torch.rand(2, 4)).shape, str(model.queries)
    (torch.Size([2, 2]), '2 asked, 0 cached, 1 calls, 0 retried')
    """
    from sigmazero.models.wrapping.choose import understood

    for name, value, least in (("max_batch", max_batch, 1), ("max_queries", max_queries, 0), ("retries", retries, 0)):
        if value is not None and not (integer(value) and value >= least):
            raise ValueError(f"{name}={value!r} must be a whole number, {least} or more")
    if rate is not None and not rate > 0:
        raise ValueError(f"rate={rate!r} must be more than 0 calls a second (None for no limit)")
    if not wait >= 0:
        raise ValueError(f"wait={wait!r} must be 0 seconds or more")
    made = understood(model)
    has = ability_of(made)
    if ability is not None and ability not in ABILITIES:
        raise ValueError(f"ability={ability!r} is not allowed; {hint(str(ability), ABILITIES)}")
    if ability is not None and not suffices(has, ability):
        raise ValueError(f"ability={ability!r}: the model gives {has} alone; leave it out, or give it a vjp in sz.wrap")
    limited = LimitedModel(made, ability or has, cache)
    limited.batch_size, limited.max_queries, limited.rate = max_batch, max_queries, rate
    limited.retries, limited.wait = retries, wait
    return limited


def refuse_small_limit(model: object, rows: int) -> None:
    """Refuse a limit that cannot suffice for one batch of `rows`: its queries would be spent for nothing."""
    if not isinstance(model, LimitedModel) or model.max_queries is None:
        return
    rows = min(rows, model.batch_size or rows)
    left = model.max_queries - model.queries.asked
    least = LEAST * rows * getattr(model.model, "cost", 1)
    if left < least:
        raise ValueError(
            f"max_queries={model.max_queries} cannot suffice: a batch of {rows} rows needs at least {least} "
            f"queries, and {left} are left; allow more, or set a smaller max_batch"
        )
