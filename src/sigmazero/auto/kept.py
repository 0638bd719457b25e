"""The store that lets a cascade go on where it stopped: a cell per member, with the facts of the rows it attacked.

A store belongs to one question about one model. Another question is refused by name before anything is written, and
what is stored is asked again before it is believed: both by the benchmark's own code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sigmazero.auto.progress import CascadeState
from sigmazero.bench import identity
from sigmazero.bench.answers import probe, same_answers
from sigmazero.bench.cells import about
from sigmazero.bench.constraints import Allowed, keep
from sigmazero.bench.provenance import peak_process, provenance
from sigmazero.bench.verify import contradicted
from sigmazero.core.attack import Attack
from sigmazero.core.oracle import Model
from sigmazero.core.problem import Problem
from sigmazero.core.result import Result
from sigmazero.data import Rows
from sigmazero.run.precision import Numbers, strictly
from sigmazero.store import CellInfo, Facts, Store


class Kept:
    """The facts of one cascade in an open store."""

    def __init__(self, store: Store, cells: Sequence[CellInfo], device: torch.device) -> None:
        self.store, self.cells, self._run = store, cells, store.begin(provenance(device))

    def recall(self, progress: CascadeState, problem: Problem, model: Model, batch_size: int) -> None:
        """Take over what the store knows, after the model has confirmed it."""
        coarse = not Numbers.current(problem.x.device).strictly
        for member, info in enumerate(self.cells):
            facts, places = self.store.facts(info.key), torch.from_numpy(self.store.positions(info.key))
            for start in range(0, len(facts), batch_size):
                part, rows = facts.take(slice(start, start + batch_size)), places[start : start + batch_size]
                here = problem.take(rows.to(problem.x.device))
                with strictly(model, problem.x.device):
                    wrong = contradicted(model, here, part, coarse)
                if wrong:
                    raise ValueError(
                        f"{self.store.path}: row {wrong[0][0]} of {info.attack}: {wrong[0][1]}; name another file"
                    )
                progress.note(member, rows, part.to_result(here.x, info))

    def add(self, member: int, rows: Tensor, result: Result, problem: Problem) -> None:
        """Keep what a member found for some rows."""
        order = rows.argsort()
        rows, result = rows[order], result.take(order.to(result.success.device))
        there = rows.to(problem.x.device)
        priced = problem.domain.priced
        facts = Facts.from_result(result, problem.y[there], None, problem.x[there], priced=priced)
        self.store.append(
            self.cells[member].key,
            rows.cpu().numpy().astype(np.int64),
            facts,
            run=self._run,
            peak_process=peak_process(),
        )


@contextmanager
def kept(
    path: Path,
    version: str,
    members: Sequence[Attack],
    problem: Problem,
    allowed: Allowed,
    model: Model,
    precision: str,
) -> Iterator[Kept]:
    """The store of this cascade at a path: a new one, or one that holds this very question."""
    rows = Rows(problem.x.cpu(), problem.y.cpu(), problem.ids.cpu(), "given")
    question = _question(version, members, problem, allowed, rows, precision)
    cells = [_cell(place, member, question, problem, allowed, rows, model) for place, member in enumerate(members)]
    answers = probe(model, problem.x) if len(problem) else torch.zeros(0, device="cpu")
    if path.exists() and path.stat().st_size:
        with Store(path) as held:
            _refuse_others(held, question, cells, answers)
    with Store(path, write=True) as store:
        store.register(cells)
        keep(store, allowed)
        if store.answers(cells[0].key) is None:
            store.keep_answers(cells[0].key, answers)
        yield Kept(store, cells, problem.x.device)


def _question(
    version: str, members: Sequence[Attack], problem: Problem, allowed: Allowed, rows: Rows, precision: str
) -> dict[str, Any]:
    """All that decides the answer, besides the model, in words that an error can show."""
    said = allowed.identity(tuple(rows.images.shape[1:]))
    more = {
        "space": said["space"],
        "mask": None if allowed.mask is None else identity.hash_tensors({"mask": allowed.mask}),
    }
    return {
        "version": version,
        "members": [f"{member!r} version {member.version}" for member in members],
        "eps": problem.budget,
        "unit": problem.unit,
        "seed": problem.seed,
        "bounds": [identity.plain_bound(bound) for bound in allowed.bounds],
        **{name: value for name, value in more.items() if value is not None},
        "inputs": identity.hash_tensors({"inputs": rows.images}),
        "labels": identity.hash_integers(rows.labels),
        "precision": precision,
    }


def _cell(
    place: int,
    member: Attack,
    question: dict[str, Any],
    problem: Problem,
    allowed: Allowed,
    rows: Rows,
    model: Model,
) -> CellInfo:
    """A member's cell. A model may count its calls or hold other state, so it is known by its weights and answers."""
    weights = identity.hash_weights(model) if isinstance(model, nn.Module) else ""
    asked = identity.describe_cell(
        member,
        weights=weights,
        code={"cascade": question["version"], "place": place},
        rows=rows,
        targets=None,
        unit=problem.unit,
        budget=problem.budget,
        seed=problem.seed,
        precision=question["precision"],
        **allowed.identity(tuple(rows.images.shape[1:])),
    )
    lower, upper = asked["bounds"]
    return CellInfo(
        key=identity.digest(asked),
        model=type(model).__name__,
        dataset=rows.name,
        attack=member.name,
        parameters=identity.plain_parameters(member),
        version=member.version,
        steps=member.steps,
        unit=problem.unit,
        goal="untargeted",
        budget=problem.budget,
        seed=problem.seed,
        precision=question["precision"],
        rows=len(problem),
        model_sha256=weights,
        data_hash=rows.content_hash,
        bounds=(lower, upper),
        identity=asked,
        origin={"cascade": question},
        about=about(rows, allowed),
    )


def _refuse_others(held: Store, question: dict[str, Any], cells: Sequence[CellInfo], answers: Tensor) -> None:
    """Refuse a store of something else, naming what differs."""
    there = [info.origin.get("cascade") for info in held.cells()]
    if not there:
        return
    if there[0] is None:
        raise ValueError(f"{held.path} is a store of a benchmark, not of SparseAutoAttack; name another file")
    differences = _differences(there[0], question)
    known = held.answers(held.cell_keys()[0])
    if not differences and known is not None and not same_answers(known, answers):
        differences = ["another model"]
    if not differences and held.cell_keys() != [cell.key for cell in cells]:
        differences = ["a model with other weights"]
    if differences:
        raise ValueError(
            f"{held.path} is the state of another evaluation ({'; '.join(differences)}); name another file"
        )


def _differences(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    found = []
    for name in {**here, **there}:
        if there.get(name, "fp32" if name == "precision" else None) != here.get(name):  # older ones knew no other
            short = name in ("inputs", "labels", "members", "space", "mask")
            found.append(f"other {name}" if short else f"{name} is {there.get(name)!r} there, {here.get(name)!r} here")
    return found
