"""Estimate how long cells will take, and count how far a run is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from sigmazero.bench.cells import Cell
from sigmazero.bench.loader import Loader
from sigmazero.bench.plan import DataSpec, ModelSpec, Question
from sigmazero.core.model import ability_of, logits_in
from sigmazero.core.oracle import Model
from sigmazero.run.progress import Advance, Pace, ignore
from sigmazero.store.store import Store

ROWS, TURNS = 32, 5  # of a pass that is timed
CHECKS = 2  # queries of the clean check and of the verification
# Attacks that do not make one forward and one backward pass a step: queries per step, and the most of a search.
QUERIES = {"EAD": (6.0, None), "BrendelBethge": (2.5, None), "VFGA": (22.0, 900), "SparseFool": (35.0, 700)}
BUDGET_SHARE = 0.35  # of the queries, since a search with a budget ends at the first point within it


@dataclass(frozen=True)
class Forecast:
    """The work left in a cell: rows, queries and seconds; `measured` if some of its rows were timed."""

    cell: Cell
    done: int
    left: int
    queries: int
    seconds: float
    measured: bool


def forecast(cells: Sequence[Cell], loader: Loader, store: Store | None) -> list[Forecast]:
    """Return the work left in each cell. Models without stored rows are loaded and timed on a few rows."""
    known = {} if store is None else {one.cell.key: one for one in store.status()}
    passes: dict[tuple[ModelSpec, DataSpec], float] = {}
    found = []
    for cell in cells:
        status, pair = known.get(cell.info.key), (cell.question.model, cell.question.data)
        done, spent = (0, 0.0) if status is None else (status.done, status.seconds)
        left, each, measured = cell.info.rows - done, queries(cell.question), done > 0 and spent > 0
        if not measured and pair not in passes:
            passes[pair] = seconds_per_query(loader.model(pair[0]), loader.rows(pair[1]).images[:ROWS])
        seconds = left * (spent / done if measured else each * passes[pair])
        found.append(Forecast(cell, done, left, left * each, seconds, measured))
    return found


def queries(question: Question) -> int:
    """Return the average queries of a row, forwards and backwards."""
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
    # A model without gradients may be a paid service: query it once.
    for _ in range(TURNS if slopes else 1):
        began = time.perf_counter()
        # Timing a model must not change the random numbers that it draws later.
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []), torch.set_grad_enabled(slopes):
            inputs = x.detach().requires_grad_(slopes)
            answer = logits_in(model(inputs.clone()))  # which it may write to
            if slopes and answer.requires_grad:  # where it does not, the doctor says so
                torch.autograd.grad(answer.sum(), inputs, allow_unused=True)
        if x.is_cuda:
            torch.cuda.synchronize(x.device)
        best = min(best, time.perf_counter() - began)
    return best / len(x) / (2 if slopes else 1)


class Progress:
    """Count rows for people, and queries for the time left: a row of one cell may take far longer than of another."""

    def __init__(self, rows: int, queries: int) -> None:
        self.total, self.done, self.cell = rows, 0, ""
        self.pace = Pace(queries)
        self.advance: Advance = ignore
        self._began = time.monotonic()

    def begin(self, cell: Cell) -> None:
        """Note the cell that a worker begins with."""
        self.cell = f"{cell.info.attack} against {cell.info.model} on {cell.info.dataset}"
        self.advance(0)

    def add(self, rows: int, queries: int, failed: bool = False) -> None:
        """Count rows, with their expected queries, that were stored or have failed."""
        self.done += 0 if failed else rows
        self.pace.advance(rows * queries)
        self.advance(rows * queries)

    @property
    def words(self) -> str:
        """Return the cell and the rows done."""
        return f"{self.cell}: {self.done} of {self.total} rows"

    def note(self) -> dict[str, Any]:
        """Return the note in the store that `sigmazero status` shows."""
        speed = self.done / (time.monotonic() - self._began) if self.done else None
        return {"cell": self.cell, "rows": self.done, "of": self.total, "speed": speed, "left": self.pace.left()}
