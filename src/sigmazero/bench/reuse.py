"""Check that stored facts are those of the present model before they are reused.

Weights and source files do not determine a model: an attribute, a hook, a file that it reads or a helper loaded by
name may change what it computes. So each model is queried at some stored points, clean and adversarial. Its answers
must agree with the stored ones up to rounding. Models with random answers (SZ003) cannot be compared.

If they disagree, nothing is reused or changed. With `anew` new cells supersede the old ones, which reports leave out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch

from sigmazero.bench.cells import Cell, Subject
from sigmazero.bench.identity import ANEW, digest, is_random, probe, probed
from sigmazero.bench.loader import Loader
from sigmazero.bench.verify import coarse_numbers, contradicted
from sigmazero.run.precision import strictly
from sigmazero.store.facts import CellInfo, other_answers
from sigmazero.store.store import Store

POINTS = 16  # stored samples at which a model is queried


class ModelChanged(ValueError):
    """Report that the present model contradicts stored facts, although its weights and source files are the same."""

    def __init__(self, store: Store, info: CellInfo, row: int | None, what: str) -> None:
        where = "" if row is None else f"row {row} of "
        super().__init__(
            f"{store.path}: {where}{info.attack} against {info.model}: {what}. The model's outputs differ from the "
            "stored ones, although its weights and source files are unchanged. Run with --anew (anew=True) to replace "
            "these facts, or use another store"
        )


def check_same_models(store: Store, infos: Iterable[CellInfo], loader: Loader) -> int:
    """Query the present models at stored points of these cells; return the number of points.

    Raise `ModelChanged` if a model contradicts them.
    """
    return sum(_check_model(store, group, loader) for group in _by_model(store, infos))


def _by_model(store: Store, infos: Iterable[CellInfo]) -> Iterable[list[CellInfo]]:
    """Return the cells with stored samples by their models; those of random models are left out."""
    findings, groups = store.findings(), dict[str, list[CellInfo]]()
    for info in infos:
        if not is_random(findings.get(info.key, ())) and store.stored(info.key).any():
            groups.setdefault(digest([info.origin.get("model"), info.identity.get("model")]), []).append(info)
    return groups.values()


def _check_model(store: Store, infos: Sequence[CellInfo], loader: Loader) -> int:
    """Query a model at stored points, spread over its cells, at least one for each; return their number."""
    count = max(POINTS // len(infos), 1)
    return sum(_check_cell(store, info, loader, count) for info in sorted(infos, key=lambda info: info.data_hash))


def _check_cell(store: Store, info: CellInfo, loader: Loader, count: int) -> int:
    """Query a model at some stored samples of a cell, evenly spread; return their number."""
    positions = store.positions(info.key)
    some = np.unique(np.linspace(0, len(positions) - 1, min(count, len(positions))).round().astype(int))
    subject, facts = Subject.of_store(store, info, loader), store.facts(info.key, positions=positions[some])
    answers = store.answers(info.key)
    if answers is not None:
        other = other_answers(answers, probe(subject.network, subject.problem.x))
        if len(other):
            row = int(subject.rows.ids[probed(len(subject.rows))[other[0]]])
            raise ModelChanged(store, info, row, "the logits of the clean input differ")
    with strictly(subject.network, loader.device):
        problem = subject.take(torch.from_numpy(positions[some]))
        wrong = contradicted(subject.network, problem, facts, coarse_numbers(info))
    if wrong:
        raise ModelChanged(store, info, *wrong[0])
    return len(some)


def current(cells: Sequence[Cell], store: Store) -> list[Cell]:
    """Return the cells, each superseded one replaced by its successor."""
    later = store.superseded()
    found = []
    for cell in cells:
        while cell.info.key in later:
            cell = _successor(cell)
        found.append(cell)
    return found


def _successor(cell: Cell) -> Cell:
    model = cell.info.identity["model"]
    # A part of the model's code, so that proofs about the old model do not apply.
    code = {**model["code"], ANEW: model["code"].get(ANEW, 0) + 1}
    identity = {**cell.info.identity, "model": {**model, "code": code}}
    return replace(cell, info=replace(cell.info, identity=identity, key=digest(identity)))


def reuse(cells: Sequence[Cell], store: Store, loader: Loader, anew: bool = False) -> tuple[list[Cell], int]:
    """Return the cells to run in this store, and the number of points at which models were queried.

    anew   supersede the cells of a model that contradicts one of them
    """
    cells = current(cells, store)
    stored = {info.key: info.provenance for info in store.cells()}
    # Provenance records whether facts were made in a coarser number format.
    known = [replace(cell.info, provenance=stored[cell.info.key]) for cell in cells if cell.info.key in stored]
    count, changed = 0, set[str]()
    for group in _by_model(store, known):
        try:
            count += _check_model(store, group, loader)
        except ModelChanged:
            if not anew:
                raise
            changed |= {info.key for info in group}
    made = [_successor(cell) if cell.info.key in changed else cell for cell in cells]
    with store.together():
        store.register([cell.info for cell in made])
        for new, old in zip(made, cells, strict=True):
            if new is not old:
                store.supersede(old.info.key, new.info.key)
    return made, count
