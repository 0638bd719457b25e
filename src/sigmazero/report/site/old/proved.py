"""Proved lower bounds beside the facts of a cell: the truth lies between them and what attacks found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sigmazero.core.metrics import Floats
from sigmazero.store.facts import CellInfo, Facts, Integers
from sigmazero.store.store import Store

SHOWN = 2  # numbers of changes that tables give proved shares at, at most


@dataclass(frozen=True)
class BoundedFacts(Facts):
    """Facts of rows of which something is proved: they need `least` changes, 0 where nothing is known."""

    least: Integers

    def take(self, samples: NDArray[Any] | slice) -> BoundedFacts:
        """The facts of some samples, by position or by a mask."""
        plain: Any = super().take(samples)
        taken: BoundedFacts = replace(plain, least=self.least[samples])
        return taken


def with_bounds(store: Store, info: CellInfo, facts: Facts) -> Facts:
    """The facts of a cell with what its store has proofs of; as they are where it has none."""
    least = store.proved(info.key)
    return facts if least is None else BoundedFacts(**vars(facts), least=least)


def lower(info: CellInfo, facts: Facts) -> Floats | None:
    """The changes that each sample needs at least; None where nothing is proved.

    What is right as it is needs one, and what is wrong none: that is known without a proof.
    """
    if not isinstance(facts, BoundedFacts) or info.unit not in ("feature", "pixel"):
        return None
    right = facts.clean_prediction == facts.label
    return np.where(right, np.maximum(facts.least, 1), 0).astype(np.float64)


def proved_ks(cells: Iterable[tuple[CellInfo, Facts]]) -> list[float]:
    """The numbers of changes at which something is proved: the first and the last.

    >>> proved_ks([])
    []
    """
    most = max((int(found.max()) for info, facts in cells if (found := lower(info, facts)) is not None), default=0)
    return sorted({float(k) for k in np.linspace(1, most - 1, SHOWN).round()}) if most > 1 else []


def both_ends(cells: Sequence[tuple[CellInfo, Facts]], changes: Sequence[Floats]) -> tuple[Floats, Floats] | None:
    """Per sample the fewest changes that fool it, as far as found, and those proved to be needed.

    Over the rows that all cells have, in the order of their numbers; `changes` are the cells'. None where nothing is
    proved of any of them.
    """
    known = [lower(info, facts) for info, facts in cells]
    if all(each is None for each in known):
        return None
    common = reduce(np.intersect1d, [facts.row for _, facts in cells])
    order = [_at(facts.row, common) for _, facts in cells]
    found = [l0[at] for l0, at in zip(changes, order, strict=True)]
    least = [each[at] for each, at in zip(known, order, strict=True) if each is not None]
    return (np.min(found, axis=0), np.max(least, axis=0)) if len(common) else None


def _at(row: Integers, common: Integers) -> Integers:
    """The places of some rows among others."""
    order = np.argsort(row, kind="stable")
    return order[np.searchsorted(row[order], common)]
