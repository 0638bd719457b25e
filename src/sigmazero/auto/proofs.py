"""Proved lower bounds beside a cascade: the share that stays right lies between the proofs and the attacks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import nn

from sigmazero.auto.cascade import SparseAutoAttack
from sigmazero.auto.result import CascadeResult
from sigmazero.bench.plan import ModelSpec
from sigmazero.bench.proofs import proof_key, recall_proofs
from sigmazero.data import Rows
from sigmazero.store.facts import Integers
from sigmazero.store.store import Store


def recall_bounds(path: Path, auto: SparseAutoAttack, rows: Rows, spec: ModelSpec | None) -> Integers:
    """Return the changes that each row is proved to need, 0 where nothing is proved.

    `spec` says how the model was loaded. A store without proofs about this model, unit and box is refused.
    """
    if not isinstance(auto.model, nn.Module):
        raise ValueError(f"the model is a {type(auto.model).__name__}; only a torch network has proofs")
    if not path.is_file():
        raise FileNotFoundError(f"there is no store {path}; certify rows into it first")
    key = proof_key(auto.model, auto.unit, auto.allowed, rows, spec)
    with Store(path) as store:
        if key not in store.proof_keys():
            raise ValueError(f"{path} has no proofs about this model with this unit and box; certify the rows into it")
    return recall_proofs(path, key, rows, auto.model)


def refuse_contradiction(found: CascadeResult, rows: Rows, least: Integers) -> None:
    """Raise an error if a point of the cascade has fewer changes than a proof says are needed."""
    needed = np.where((found.seen & ~found.right).numpy(), 0.0, found.best.changes.double().numpy())
    for place in np.flatnonzero(needed < least):
        by = found.found_by[int(place)]
        how = "is already wrong" if by is None else f"is fooled by {by} with {needed[place]:g} changes"
        raise ValueError(
            f"row {int(rows.ids[place])} {how}, but a proof says that {least[place]} are needed, so one of "
            "them is wrong: attack the row alone and check the point, and prove it again"
        )
