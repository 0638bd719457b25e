"""A whole run: clean check of every row, then search and verification of the rest, batch by batch.

Rows that have their answer leave, so the model only sees rows that still ask. Nothing an attack computes for a row
depends on the other rows, so neither batch size nor order nor compaction changes a result.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from sigmazero.core.oracle import Model, Oracle, Tally
from sigmazero.core.problem import Problem
from sigmazero.core.result import Outcome, Result
from sigmazero.run.hardware import Engine, Steppers, quiet
from sigmazero.run.memory import Batches
from sigmazero.run.progress import Advance, bar
from sigmazero.run.search import Found, Phases, Stepper, search
from sigmazero.run.verify import Verifier


def run(
    attack: Phases,
    model: Model,
    problem: Problem,
    *,
    batch_size: int | None = None,
    progress: bool = False,
    compact: bool = True,
    engine: Engine | None = None,
) -> Result:
    """Attack every row of a problem."""
    began = time.perf_counter()
    engine = engine or Engine()
    engine.check(problem)
    _check_device(model, problem)
    with (
        quiet(model),
        torch.inference_mode(False),
        torch.no_grad(),
        torch.cuda.device_of(problem.x),  # type: ignore[no-untyped-call]
        engine.room(problem.x.device),
        bar(attack.name, len(problem), show=progress) as advance,
    ):
        session = Session(attack, model, problem, Batches(model, problem, batch_size, engine), engine, compact, advance)
        result = session.run()
    if problem.x.is_cuda:
        torch.cuda.synchronize(problem.x.device)
    return replace(result, seconds=time.perf_counter() - began)


@dataclass
class Session:
    """What the parts of a run share."""

    attack: Phases
    model: Model
    problem: Problem
    batches: Batches
    engine: Engine
    compact: bool
    advance: Advance

    def run(self) -> Result:
        """Clean check, then the rows that need a search, then again in fp32 those a coarse search misjudged."""
        problem = self.problem
        every = torch.arange(len(problem), device=problem.x.device)
        verifier = Verifier(self.model)
        parts = self.batches.apply(every, lambda rows: _checked(verifier.ask(problem.x[rows]), problem.take(rows)))
        clean = torch.cat(parts) if parts else problem.x.new_zeros(0, 2)
        finite = clean.isfinite().all(1)
        if len(problem) and not bool(finite.any()):
            raise ValueError("the model returned NaN or Inf for every clean input; check weights and normalisation")
        asks = finite & ~problem.fooled(clean)
        settled, asking = every[~asks], every[asks]
        results = [self._settle(verifier, settled, clean)]
        self.advance(len(settled))
        results += self._search(verifier, asking, clean, self.engine)
        result = Result.join(results).take(torch.cat([settled, asking]).argsort())
        # A second search would break a limit of queries.
        once = self.engine.exact or self.attack.limit is not None
        return result if once else self._again(verifier, result, clean)

    def _settle(self, verifier: Verifier, rows: Tensor, clean: Tensor) -> Result:
        """The rows that end with the clean check: already at the goal, or without finite logits."""
        part = self.problem.take(rows)
        tally = Tally.start(part, depth=1)
        tally.broken = ~clean[rows].isfinite().all(1)
        tally.counts = torch.where(tally.broken[:, None], tally.counts, 0)
        return verifier.settle(part, Found(tally, part.x if self.attack.keeps_own else None), clean[rows])

    def _search(self, verifier: Verifier, rows: Tensor, clean: Tensor, engine: Engine) -> list[Result]:
        lowered = engine.lower(self.model)
        pool = torch.cuda.graph_pool_handle() if self.problem.x.is_cuda else None
        steppers = [Steppers(phase, engine, pool) for phase in self.attack.phases(self.problem)]

        def begin(phase: int, oracle: Oracle, before: Any) -> Stepper:
            return steppers[phase].begin(oracle, self.batches.size, before)

        def one_batch(rows: Tensor) -> Result:
            part = self.problem.take(rows)
            # Forward-only queries need less memory than the batch with its backward pass: twice the rows at once.
            oracle = Oracle(lowered, part, exact=engine.exact, chunk=2 * self.batches.size)
            recheck = None if engine.exact else verifier.recheck
            with engine.numbers():
                found = search(self.attack, oracle, begin, self.compact, recheck, self.advance)
            return verifier.report(part, found, clean[rows])

        return self.batches.apply(rows, one_batch)

    def _again(self, verifier: Verifier, result: Result, clean: Tensor) -> Result:
        """Search once more, in fp32, where a coarse search found something that did not hold, and nothing that did.

        A sample for which it found nothing at all is a failure like any other: a second search would be a second try.
        """
        failed = (result.outcome == Outcome.UNVERIFIED).nonzero().squeeze(1)
        if not len(failed):
            return result
        second = Result.join(self._search(verifier, failed, clean, replace(self.engine, precision="fp32")))
        spent = result.take(failed)
        second = replace(
            second,
            # The clean check was made once.
            forwards=second.forwards + spent.forwards - 1,
            backwards=second.backwards + spent.backwards,
        )
        if second.own is not None:
            second = replace(second, own=replace(second.own, forwards=second.forwards, backwards=second.backwards))
        order = torch.arange(len(result), device=failed.device)
        order[failed] = len(result) + torch.arange(len(failed), device=failed.device)
        return Result.join([result, second]).take(order)


def _checked(logits: Tensor, problem: Problem) -> Tensor:
    """The logits of clean inputs, if they are logits and the labels fit them."""
    n = len(problem)
    if not isinstance(logits, Tensor):
        raise TypeError(f"the model returned a {type(logits).__name__}, not a tensor of logits")
    if logits.ndim != 2 or len(logits) != n or logits.shape[1] < 2:
        raise ValueError(
            f"the model returned shape {tuple(logits.shape)} for {n} inputs; expected ({n}, classes), 2 classes or more"
        )
    if not logits.dtype.is_floating_point:
        raise TypeError(f"the model returned dtype {logits.dtype}; logits must be floating point")
    top = int(problem.y.max())
    if top >= logits.shape[1]:
        classes, sample = logits.shape[1], int(problem.ids[problem.y.argmax()])
        raise ValueError(f"label {top} (id {sample}) does not exist: the model knows classes 0 to {classes - 1}")
    return logits


def _check_device(model: Model, problem: Problem) -> None:
    parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    if parameter is not None and parameter.device != problem.x.device:
        raise ValueError(f"the model is on {parameter.device}, the inputs are on {problem.x.device}; move one of them")
