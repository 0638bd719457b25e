"""Ask whether examples found on one model fool the others of a store; keep the answers as cells of their own.

Such a cell has the points of another cell and another model. Every point is judged as those of attacks are; `verify`
checks it as any other. Its key covers the cell that the points come from, so it is asked about once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch

from sigmazero.bench.constraints import recall as recall_allowed
from sigmazero.bench.identity import digest
from sigmazero.bench.loader import Loader, in_format
from sigmazero.bench.provenance import provenance
from sigmazero.bench.reuse import check_same_models
from sigmazero.bench.verify import load
from sigmazero.report.measure import TRANSFER
from sigmazero.run.check import check
from sigmazero.store.facts import CellInfo, Facts, Integers
from sigmazero.store.store import Store


def pairs(store: Store) -> Iterator[tuple[CellInfo, CellInfo]]:
    """Yield every untargeted run with the cell of its examples on each other model of the same rows."""
    old = store.superseded()
    every = [i for i in store.cells() if i.identity and TRANSFER not in i.origin and i.key not in old]
    for source in every:
        if source.goal != "untargeted" or source.budget is not None:
            continue
        others = {i.model_sha256: i for i in every if i.data_hash == source.data_hash and i.unit == source.unit}
        for sha256, other in others.items():
            if sha256 != source.model_sha256:
                yield source, _described(source, other)


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


def transfer(store: Store, loader: Loader, told: Callable[[CellInfo], None] = lambda _: None) -> int:
    """Ask the models about what is not stored yet; return the number of rows that were asked about."""
    asked, run = 0, None
    wanted = list(pairs(store))
    held = {info.key: info for pair in wanted for info in pair if info.key in store.cell_keys()}
    check_same_models(store, held.values(), loader)
    # The rows and the model of a loader stay until others are asked for: by rows, then by model.
    for source, info in sorted(wanted, key=lambda pair: (pair[1].data_hash, pair[1].model_sha256)):
        store.register([info])
        there, done = store.positions(source.key), store.stored(info.key)
        new = np.flatnonzero(~done[there])
        if not len(new):
            continue
        run = store.begin(provenance(loader.device)) if run is None else run
        told(info)
        facts = _asked(store, loader, info, store.facts(source.key).take(new), there[new])
        store.append(info.key, there[new], facts, run=run)
        asked += len(new)
    return asked


def _asked(store: Store, loader: Loader, info: CellInfo, found: Facts, places: Integers) -> Facts:
    """Return the model's answers to the examples that were found, and to the clean inputs of the others."""
    network, rows, _ = load(store, info, loader)
    network, images = in_format(network, rows.images, info.precision)
    some = torch.from_numpy(places)
    x, labels = images[some].to(loader.device), rows.labels[some].to(loader.device)
    points = found.rebuild(x)  # a sample without an example is unchanged
    allowed = recall_allowed(store, info, loader.spaces)
    how = {"bounds": allowed.bounds, "mask": allowed.mask, "space": allowed.space, "margin": info.margin}
    result = check(network, x, labels, points, unit=info.unit, ids=rows.ids[some], **how)  # type: ignore[arg-type]
    priced = not bool(np.isnan(found.cost).all())
    return Facts.from_result(result, labels, None, x, priced=priced)
