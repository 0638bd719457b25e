"""A whole run: clean check of every row, then search and verification of the rest, batch by batch.

Rows that have their answer leave, so the model only sees rows that still ask. Nothing an attack computes for a row
depends on the other rows, so neither batch size nor order nor compaction changes a result.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from sigmazero.batches import Batches
from sigmazero.loop import Found, Steps, search
from sigmazero.oracle import Model, Oracle, Tally
from sigmazero.problem import Problem
from sigmazero.progress import bar
from sigmazero.result import Result
from sigmazero.verify import verify


def run(
    attack: Steps,
    model: Model,
    problem: Problem,
    *,
    batch_size: int | None = None,
    progress: bool = False,
    compact: bool = True,
) -> Result:
    """Attack every row of a problem."""
    began = time.perf_counter()
    batches = Batches(problem.features, batch_size)
    _check_device(model, problem)
    every = torch.arange(len(problem), device=problem.x.device)
    with (
        _evaluating(model),
        torch.inference_mode(False),
        torch.no_grad(),
        bar(attack.name, len(problem), show=progress) as advance,
    ):
        parts = batches.apply(every, lambda rows: _checked(model(problem.x[rows]), problem.take(rows)))
        clean = torch.cat(parts) if parts else problem.x.new_zeros(0, 2)
        finite = clean.isfinite().all(1)
        if len(problem) and not bool(finite.any()):
            raise ValueError("the model returned NaN or Inf for every clean input; check weights and normalisation")
        asking = finite & ~problem.fooled(clean)
        settled, asking = every[~asking], every[asking]
        results = [_settle(model, problem.take(settled), clean[settled], attack.keeps_own)]
        advance(len(settled))

        def attack_rows(rows: Tensor) -> Result:
            part = problem.take(rows)
            # Forward-only queries need less memory than the batch with its backward pass: twice the rows at once.
            oracle = Oracle(model, part, chunk=max(2 * batches.size, 8))
            return verify(model, part, search(attack, oracle, compact=compact, advance=advance), clean[rows])

        results += batches.apply(asking, attack_rows)
    if problem.x.is_cuda:
        torch.cuda.synchronize(problem.x.device)
    order = torch.cat([settled, asking]).argsort()
    return replace(Result.join(results).take(order), seconds=time.perf_counter() - began)


def _settle(model: Model, problem: Problem, clean: Tensor, keeps_own: bool) -> Result:
    """The rows that end with the clean check: already at the goal, or without finite logits."""
    tally = Tally.start(problem, depth=1)
    tally.broken = ~clean.isfinite().all(1)
    tally.counts = torch.where(tally.broken[:, None], tally.counts, 0)
    tally.step_found = torch.zeros_like(tally.step_found)
    return verify(model, problem, Found(tally, problem.x if keeps_own else None), clean)


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
