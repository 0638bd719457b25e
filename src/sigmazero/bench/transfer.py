"""Test whether examples found on one model fool the other models of a store, and store the answers as cells.

Such a cell has the points of another cell and another model. Points are judged as those of attacks, and `verify`
checks them alike. The key includes the cell that the points come from, so nothing is asked twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from sigmazero.bench.cells import Subject
from sigmazero.bench.identity import digest
from sigmazero.bench.loader import Loader
from sigmazero.bench.provenance import provenance
from sigmazero.bench.reuse import check_same_models
from sigmazero.bench.verify import edited
from sigmazero.report.runs import TRANSFER
from sigmazero.run.check import check_start
from sigmazero.store.facts import CellInfo, Facts, Integers
from sigmazero.store.store import Store


def pairs(infos: Sequence[CellInfo]) -> Iterator[tuple[CellInfo, CellInfo]]:
    """Yield pairs: an untargeted run, and the cell of its examples on another model of the same rows."""
    for source in infos:
        if source.goal != "untargeted" or source.budget is not None:
            continue
        same = [info for info in infos if (info.data_hash, info.unit) == (source.data_hash, source.unit)]
        for model, other in {_model(info): info for info in same}.items():
            if model != _model(source):
                yield source, _described(source, other)


def _model(info: CellInfo) -> str:
    return digest(info.identity["model"])


def _described(source: CellInfo, other: CellInfo) -> CellInfo:
    """Return the cell of a run's examples on the model of another cell."""
    identity = {**source.identity, "model": other.identity["model"], TRANSFER: source.key}
    return replace(
        source,
        key=digest(identity),
        identity=identity,
        model=other.model,
        model_sha256=other.model_sha256,
        attack=f"{source.attack} from {source.model}",
        origin={**source.origin, "model": other.origin["model"], TRANSFER: source.key},
        provenance={},
    )


def transfer(store: Store, loader: Loader, callback: Callable[[CellInfo], None] = lambda _: None) -> int:
    """Query the models about the rows that are not stored yet; return their number.

    Superseded cells are left out, and cells of models whose code has changed since they were run.

    callback   called with each cell before its model is queried
    """
    count, run, old = 0, None, store.superseded()
    infos = [info for info in store.cells() if info.identity and TRANSFER not in info.origin and info.key not in old]
    models = {_model(info): info for pair in pairs(infos) for info in pair}
    gone = {model for model, info in models.items() if edited(info, loader)}
    wanted, stored = list(pairs([info for info in infos if _model(info) not in gone])), set(store.cell_keys())
    involved = {info.key: info for pair in wanted for info in pair if info.key in stored}
    check_same_models(store, involved.values(), loader)
    # A loader keeps one data set and one model: sort so that each is loaded once.
    for source, info in sorted(wanted, key=lambda pair: (pair[1].data_hash, pair[1].model_sha256)):
        store.register([info])
        there, done = store.positions(source.key), store.stored(info.key)
        new = np.flatnonzero(~done[there])
        if not len(new):
            continue
        run = store.begin(provenance(loader.device)) if run is None else run
        callback(info)
        facts = _ask(store, loader, info, store.facts(source.key).take(new), there[new])
        store.append(info.key, there[new], facts, run=run)
        count += len(new)
    return count


def _ask(store: Store, loader: Loader, info: CellInfo, found: Facts, positions: Integers) -> Facts:
    """Return the facts of the examples, and of the clean inputs where none was found."""
    subject, some = Subject.of_store(store, info, loader), torch.from_numpy(positions)
    problem = subject.take(some)
    points = found.rebuild(problem.x)  # a sample without an example is unchanged
    return subject.facts(check_start(subject.network, replace(problem, start=points)), some)
