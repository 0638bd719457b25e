"""Keep the results of a cascade in a store: a cell for each attack, like those of a benchmark.

A cell has the rows that the attack was run on. The benchmark's own code makes its key, and checks stored points on the
present model before they are reused. So a store may hold any number of evaluations, and `sigmazero verify`, `report`
and `merge` read it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from sigmazero.bench.cells import Cell, expand
from sigmazero.bench.constraints import Allowed, functions_of, keep, space_key
from sigmazero.bench.loader import GIVEN, Loader
from sigmazero.bench.loader import keep as keep_rows
from sigmazero.bench.plan import DataSpec, ModelSpec, Question
from sigmazero.bench.provenance import provenance
from sigmazero.bench.reuse import reuse
from sigmazero.core.attack import Attack
from sigmazero.core.findings import CODES, Finding
from sigmazero.core.hardware import Precision
from sigmazero.core.oracle import Model
from sigmazero.core.problem import Problem
from sigmazero.core.result import Result
from sigmazero.data import Rows
from sigmazero.models.wrapping import wrap
from sigmazero.store.facts import Facts
from sigmazero.store.store import Store


class StoredRuns:
    """The cells of one cascade in an open store, in the order of its attacks."""

    def __init__(self, store: Store, cells: Sequence[Cell], problem: Problem) -> None:
        self.store, self.cells, self.problem = store, cells, problem
        self._run = store.begin(provenance(problem.x.device))

    def recall(self, place: int) -> tuple[Tensor, Result]:
        """Return the samples that the attack at a place has been run on, and what it found."""
        info = self.cells[place].info
        rows = torch.from_numpy(self.store.positions(info.key))
        return rows, self.store.facts(info.key).to_result(self.problem.x[rows.to(self.problem.x.device)], info)

    def add(self, place: int, rows: Tensor, result: Result) -> None:
        """Keep what the attack at a place found for some samples."""
        part = self.problem.take(rows.to(self.problem.x.device))
        facts = Facts.from_result(result, part.y, None, part.x, priced=part.domain.priced)
        self.store.append(self.cells[place].info.key, rows.numpy(), facts, run=self._run)


@contextmanager
def stored(
    path: Path,
    attacks: Sequence[Attack],
    problem: Problem,
    allowed: Allowed,
    model: Model,
    *,
    names: tuple[str, str],
    findings: Sequence[Finding],
    precision: Precision | None,
    batch_size: int,
) -> Iterator[StoredRuns]:
    """Open a store for a cascade on a problem.

    names     what reports call the model and the data
    findings  what the doctor found
    """
    loader = Loader(problem.x.device)
    network, data = ModelSpec(names[0], GIVEN), DataSpec(names[1], GIVEN)
    loader.give_model(network, model if isinstance(model, nn.Module) else wrap(model, kind="torch"))
    rows = Rows(problem.x.detach().cpu(), problem.y.cpu(), problem.ids.cpu(), names[1])
    loader.give_rows(data, rows)
    questions = [
        Question(
            model=network,
            data=data,
            label=attack.name,
            attack=attack,
            unit=problem.unit,
            budget=problem.budget,
            seed=problem.seed,
            precision=precision,
            batch_size=batch_size,
            prepare="fold",
            allowed=allowed,
        )
        for attack in attacks
    ]
    cells = [expand([question], loader)[0][0] for question in questions]
    if allowed.space is not None and functions_of(allowed.space):
        loader.spaces[space_key(cells[0].info.identity["space"])] = allowed.space
    with Store(path, write=True) as store:
        cells, _ = reuse(cells, store, loader)
        with store.together():
            store.register([cell.info for cell in cells])
            keep(store, allowed)
            keep_rows(store, rows)
            for cell in cells:
                store.diagnose(cell.info.key, [{**asdict(each), "about": CODES[each.code]} for each in findings])
        yield StoredRuns(store, cells, problem)
