"""Estimate how long cells will take here: from a timed pass of each model, or from rows that the store has."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from sigmazero.bench.cells import Cell
from sigmazero.bench.loader import Loader
from sigmazero.bench.plan import DataSpec, ModelSpec, Question
from sigmazero.core.model import ability_of, logits_in
from sigmazero.core.oracle import Model
from sigmazero.store.store import Store

ROWS, TURNS = 32, 5  # of a pass that is timed
CHECKS = 2  # queries of the clean check and of the verification
# Queries of a search: per step, and at most, where it is not one forward and one backward pass for each step.
QUERIES = {"EAD": (6.0, None), "BrendelBethge": (2.5, None), "VFGA": (22.0, 900), "SparseFool": (35.0, 700)}
BUDGET_SHARE = 0.35  # of the queries: with a budget, a search ends at the first point within it


@dataclass(frozen=True)
class Forecast:
    """The rest of a cell: rows, their queries, and seconds; `measured` if rows of it were timed."""

    cell: Cell
    done: int
    left: int
    queries: int
    seconds: float
    measured: bool


def forecast(cells: Sequence[Cell], loader: Loader, store: Store | None) -> list[Forecast]:
    """Return the rest of each cell; models are loaded and asked about a few rows."""
    known = {} if store is None else {one.cell.key: one for one in store.status()}
    passes: dict[tuple[ModelSpec, DataSpec], float] = {}
    found = []
    for cell in cells:
        question, status = cell.question, known.get(cell.info.key)
        done, spent = (0, 0.0) if status is None else (status.done, status.seconds)
        left, measured = cell.info.rows - done, done > 0 and spent > 0
        if measured:
            seconds = left * spent / done
        else:
            pair = question.model, question.data
            if pair not in passes:
                passes[pair] = seconds_per_query(loader.model(pair[0]), loader.rows(pair[1]).images[:ROWS])
            seconds = left * queries(question) * passes[pair]
        found.append(Forecast(cell, done, left, left * queries(question), seconds, measured))
    return found


def queries(question: Question) -> int:
    """Return how often a search asks about a row, forwards and backwards, on average."""
    attack = question.attack
    if attack.limit is not None:
        return attack.limit
    each, most = QUERIES.get(type(attack).__name__, (None, None))
    count = (2.0 if attack.needs == "gradients" else 1.0) * attack.iterations if each is None else each * attack.steps
    if most is not None:
        count = min(count, most)
    return round(count * (1 if question.budget is None else BUDGET_SHARE)) + CHECKS


def seconds_per_query(model: Model, x: torch.Tensor) -> float:
    """Time half of a forward and a backward pass, or a forward pass of a model without gradients, per row."""
    where = next(model.parameters(), x[:0]) if isinstance(model, nn.Module) else x[:0]
    slopes = ability_of(model) == "gradients"
    x = x.to(where.device, where.dtype if where.is_floating_point() else x.dtype)
    best = float("inf")
    # A model without gradients may be a paid service: ask once.
    for _ in range(TURNS if slopes else 1):
        began = time.perf_counter()
        # A model that draws numbers must not draw other ones afterwards because it was timed.
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []), torch.set_grad_enabled(slopes):
            asked = x.detach().requires_grad_(slopes)
            answer = logits_in(model(asked.clone()))  # which it may write to
            if slopes and answer.requires_grad:  # where it does not, the doctor says so
                torch.autograd.grad(answer.sum(), asked, allow_unused=True)
        if x.is_cuda:
            torch.cuda.synchronize(x.device)
        best = min(best, time.perf_counter() - began)
    return best / len(x) / (2 if slopes else 1)
