"""What is proved beside a cascade: the share that stays right lies between the proofs and the attacks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from sigmazero.auto.cascade import SparseAutoAttack
from sigmazero.auto.progress import fewest
from sigmazero.auto.report import CascadeReport
from sigmazero.bench.loader import Loader
from sigmazero.bench.plan import ModelSpec
from sigmazero.bench.proofs import certify_into, proof_key, recall_proofs
from sigmazero.data import Rows
from sigmazero.store.facts import Integers
from sigmazero.store.store import Store
from sigmazero.truth.certify import certify


@dataclass(frozen=True)
class GateProofs:
    """Where lower bounds come from.

    store    a store with proofs about the model and these rows, or where to keep those made now
    seconds  to try to prove, of each row that the cascade leaves right, that eps changes cannot fool it
    spec     how the model was loaded, by which a store knows it; None where it was handed in
    """

    store: Path | None = None
    seconds: float | None = None
    spec: ModelSpec | None = None

    def __bool__(self) -> bool:
        """Whether anything is asked for."""
        return self.store is not None or self.seconds is not None

    def check(self, cascade: SparseAutoAttack, rows: Rows) -> None:
        """Refuse what cannot be proved, before the cascade runs."""
        if not self:
            return
        if not isinstance(cascade.model, nn.Module):
            raise ValueError(f"the model is a {type(cascade.model).__name__}; only a torch network has proofs")
        if self.seconds is None:
            if self.store is not None and not self.store.is_file():
                raise FileNotFoundError(
                    f"there is no store {self.store}; certify the rows into one first, or give seconds to do it now"
                )
            self._check_store(cascade, rows)
            return
        if not self.seconds > 0:
            raise ValueError(f"certify={self.seconds:g} must be more than 0 seconds for each row")
        if cascade.eps is None:
            raise ValueError("to certify needs a number of changes to prove something about; give eps, such as 1")
        if cascade.allowed.space is not None:
            raise ValueError("to certify in a space is not possible; leave certify out, or give bounds and a mask")

    def _check_store(self, cascade: SparseAutoAttack, rows: Rows) -> None:
        """Refuse a damaged store, and one that is about other models: all would be between 0 and what attacks leave."""
        assert self.store is not None
        assert isinstance(cascade.model, nn.Module)
        key = proof_key(cascade.model, cascade.unit, cascade.allowed, rows, self.spec)
        with Store(self.store) as store:
            if key not in store.proof_keys():
                raise ValueError(
                    f"{self.store} has no proofs about this model with this unit and box; name another store, or "
                    "certify the rows into it first"
                )

    def least(self, cascade: SparseAutoAttack, rows: Rows) -> Integers | None:
        """The changes that each row is proved to need, 0 where nothing is; None where nothing was asked for.

        A point of the cascade below its bound is refused, naming both.
        """
        if not self:
            return None
        assert isinstance(cascade.model, nn.Module)
        key = proof_key(cascade.model, cascade.unit, cascade.allowed, rows, self.spec)
        known = (
            np.zeros(len(rows), np.int64) if self.store is None else recall_proofs(self.store, key, rows, cascade.model)
        )
        report = cascade.report
        if self.seconds is not None and cascade.eps is not None:
            left = (report.right & report.seen & (fewest(report.l0) > cascade.eps)).cpu()
            places = np.flatnonzero(left.numpy() & (known <= cascade.eps))
            if len(places):
                known[places] = np.maximum(known[places], self._proved(cascade, rows.select(places.tolist()), key))
        _refuse_contradiction(report, rows, known)
        return known

    def _proved(self, cascade: SparseAutoAttack, rows: Rows, key: Any) -> Integers:
        """Bounds of rows that the cascade could not fool; no attack goes before."""
        assert cascade.eps is not None
        assert isinstance(cascade.model, nn.Module)
        device = cascade.device or rows.images.device
        sites = rows.images[0].numel() if cascade.unit == "feature" else rows.images[0, 0].numel()
        how: Any = {"up_to": min(cascade.eps, sites), "time_limit": self.seconds, "attack": None}
        how |= {"bounds": cascade.allowed.bounds, "mask": cascade.allowed.mask}
        if self.store is not None:
            found, _ = certify_into(self.store, key, cascade.model, rows, Loader(device), **how)
        else:
            images, labels = rows.images.to(device), rows.labels.to(device)
            found = certify(cascade.model, images, labels, unit=cascade.unit, **how)
        least: Integers = found.lower.cpu().numpy()
        return least


def _refuse_contradiction(report: CascadeReport, rows: Rows, least: Integers) -> None:
    l0 = fewest(report.l0).cpu().numpy()
    found = np.where((report.right & report.seen).cpu().numpy(), l0, np.where(report.seen.cpu().numpy(), 0.0, np.inf))
    for place in np.flatnonzero(found < least):
        by = report.found_by[int(place)]
        how = "is wrong as it is" if by is None else f"is fooled by {by} with {found[place]:g} changes"
        raise ValueError(
            f"row {int(rows.ids[place])} {how}, and a proof says that {least[place]} are needed; one of both is wrong: "
            "attack the row alone and replay the point, and prove it again"
        )
