"""The loop, owned once: clean check, steps, stopping, compaction, verification.

Rows that have their answer leave the batch, so the model only sees rows that still ask. Nothing an attack computes
for a row depends on the other rows, so neither batch size nor compaction changes a result.
"""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from sigmazero.oracle import Model, Oracle, Tally, take
from sigmazero.problem import Problem, count_features, count_pixels
from sigmazero.progress import Advance, bar
from sigmazero.result import Outcome, Result


class Steps(Protocol):
    """The part of an attack the loop needs."""

    @property
    def name(self) -> str:
        """What to call it."""

    @property
    def iterations(self) -> int:
        """How often to step at most."""

    def init(self, oracle: Oracle) -> Any:
        """The state before the first step."""

    def step(self, i: Tensor, state: Any, oracle: Oracle) -> Any:
        """One step."""


def run(
    attack: Steps,
    model: Model,
    problem: Problem,
    *,
    batch_size: int | None = None,
    progress: bool = False,
    compact: bool = True,
) -> Result:
    """Attack every row of a problem, batch by batch."""
    size = _check_batch_size(batch_size, problem)
    _check_device(model, problem)
    parts: list[Result] = []
    start = 0
    with (
        _evaluating(model),
        torch.inference_mode(False),
        torch.no_grad(),
        bar(attack.name, len(problem), show=progress) as advance,
    ):
        while start < len(problem) or not parts:
            rows = torch.arange(start, min(start + size, len(problem)), device=problem.x.device)
            try:
                parts.append(_batch(attack, model, problem.take(rows), 2 * size, compact, advance))
            except (RuntimeError, MemoryError) as error:
                if not _out_of_memory(error):
                    raise
                size = _halve(size, error)
                continue
            start += size
    result = Result.join(parts)
    if len(result) and bool((result.clean_prediction < 0).all()):
        raise ValueError("the model returned NaN or Inf logits for every clean input; check weights and normalisation")
    return result


def _batch(attack: Steps, model: Model, problem: Problem, chunk: int, compact: bool, advance: Advance) -> Result:
    """Clean check, search and verification of one batch."""
    began = time.perf_counter()
    oracle = Oracle(model, problem, chunk=max(chunk, 8))
    clean = _clean_check(oracle)
    tally = _search(attack, oracle, compact, advance) if len(problem) else oracle.tally
    result = _verify(model, problem, tally, clean)
    if problem.x.is_cuda:
        torch.cuda.synchronize(problem.x.device)
    object.__setattr__(result, "seconds", time.perf_counter() - began)
    return result


def _clean_check(oracle: Oracle) -> Tensor:
    """One forward for every row: those already at the goal, or with broken logits, ask no more."""
    problem = oracle.problem
    if not len(problem):
        return problem.x.new_zeros(0, 2)
    logits = oracle.logits(problem.x)
    _check_logits(logits, problem)
    oracle.retire()
    return logits


def _search(attack: Steps, oracle: Oracle, compact: bool, advance: Advance) -> Tally:
    """Step until every row has its answer; returns the tally of all rows in their first order."""
    rows = torch.arange(len(oracle.problem), device=oracle.problem.x.device)
    ledger = take(oracle.tally, rows)
    state: Any = None
    for i in range(attack.iterations):
        if not bool(oracle.tally.alive.all()) and (compact or not bool(oracle.tally.alive.any())):
            left = ~oracle.tally.alive
            _write(ledger, rows[left], take(oracle.tally, left))
            advance(float(left.sum()) * (1 - i / attack.iterations))
            keep = oracle.tally.alive
            rows = rows[keep]
            oracle.take(keep)
            state = None if state is None else take(state, keep)
        if not len(rows):
            return ledger
        if state is None:
            state = attack.init(oracle)
        state = attack.step(oracle.iteration, state, oracle)
        oracle.retire(getattr(state, "done", None))
        oracle.iteration = oracle.iteration + 1
        advance(len(rows) / attack.iterations)
    _write(ledger, rows, oracle.tally)
    return ledger


def _write(ledger: Tally, rows: Tensor, part: Tally) -> None:
    for field in fields(ledger):
        getattr(ledger, field.name)[rows] = getattr(part, field.name)


def _verify(model: Model, problem: Problem, tally: Tally, clean: Tensor) -> Result:
    """Ask the model afresh about every record, best first, and count its changes again."""
    x_adv, logits = problem.x.clone(), clean.clone()
    forwards = tally.forwards.clone()
    already = tally.best_l0 == 0
    claimed = tally.best_l0 <= problem.sites
    confirmed = already.clone()
    for k in range(tally.counts.shape[1]):
        rows = (claimed & ~confirmed & (tally.counts[:, k] <= problem.sites)).nonzero().squeeze(1)
        if not len(rows):
            break
        part, points = problem.take(rows), tally.points[rows, k]
        fresh = model(points)
        forwards[rows] += 1
        good = part.fooled(fresh) & fresh.isfinite().all(1) & part.feasible(points)
        rows = rows[good]
        x_adv[rows], logits[rows], confirmed[rows] = points[good], fresh[good].to(logits.dtype), True
    outcome = torch.full_like(tally.forwards, Outcome.NOT_FOUND, dtype=torch.int8)
    outcome[tally.broken] = Outcome.NON_FINITE
    outcome[claimed] = Outcome.UNVERIFIED
    outcome[confirmed] = Outcome.FOUND
    outcome[already] = Outcome.ALREADY
    failed = torch.where(confirmed, 0.0, torch.inf)
    finite = clean.isfinite().all(1)
    return Result(
        x_adv=x_adv,
        success=confirmed,
        l0=count_features(x_adv, problem.x) + failed,
        l0_pixel=count_pixels(x_adv, problem.x) + failed,
        step_found=torch.where(confirmed, tally.step_found, -1),
        forwards=forwards,
        backwards=tally.backwards,
        outcome=outcome,
        margin=problem.margin(logits),
        prediction=logits.argmax(1),
        clean_prediction=torch.where(finite, clean.argmax(1), -1),
        ids=problem.ids,
        unit=problem.unit,
        budget=problem.budget,
    )


@contextmanager
def _evaluating(model: Model) -> Iterator[None]:
    """Eval mode for the time of a run; every sub-module gets its own mode back."""
    modes = [(m, m.training) for m in model.modules()] if isinstance(model, nn.Module) else []
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _check_logits(logits: Tensor, problem: Problem) -> None:
    if not isinstance(logits, Tensor):
        raise TypeError(f"the model returned a {type(logits).__name__}, not a tensor of logits")
    if logits.ndim != 2 or len(logits) != len(problem) or logits.shape[1] < 2:
        raise ValueError(
            f"the model returned shape {tuple(logits.shape)} for {len(problem)} inputs; expected "
            f"({len(problem)}, classes) with at least 2 classes"
        )
    if not logits.dtype.is_floating_point:
        raise TypeError(f"the model returned dtype {logits.dtype}; logits must be floating point")
    top = int(problem.y.max())
    if top >= logits.shape[1]:
        classes, sample = logits.shape[1], int(problem.ids[problem.y.argmax()])
        raise ValueError(f"label {top} (id {sample}) does not exist: the model knows classes 0 to {classes - 1}")


def _check_device(model: Model, problem: Problem) -> None:
    parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    if parameter is not None and parameter.device != problem.x.device:
        raise ValueError(f"the model is on {parameter.device}, the inputs are on {problem.x.device}; move one of them")


def _check_batch_size(batch_size: int | None, problem: Problem) -> int:
    if batch_size is None:
        # About a million scalars at once, at most 512 rows: enough to keep a device busy, small enough to start with.
        return max(1, min(512, 2**20 // problem.features))
    if isinstance(batch_size, bool) or int(batch_size) != batch_size or batch_size < 1:
        raise ValueError(f"batch_size={batch_size!r} must be a whole number, 1 or more (None picks one)")
    return int(batch_size)


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)


def _halve(size: int, error: BaseException) -> int:
    if size == 1:
        raise MemoryError(
            "out of memory with a single input at a time; use a smaller model or another device"
        ) from error
    warnings.warn(f"out of memory with {size} inputs at a time, going on with {size // 2}", stacklevel=2)
    return size // 2
