"""Success over k, and the best of several attacks.

`l0` is always one number per sample, infinite where the sample was not fooled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sigmazero.core.metrics import Floats, checked
from sigmazero.report.site.old.measure import changes, few
from sigmazero.store.facts import Facts, Integers


def curve(l0: ArrayLike) -> tuple[Floats, Floats]:
    """The k where the success rate jumps, 0 first, and the rate from each of them to the next.

    >>> [each.tolist() for each in curve([3, 3, 7, np.inf])]
    [[0.0, 3.0, 7.0], [0.0, 0.5, 0.75]]
    """
    values = checked(l0)
    ks, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    if not len(ks) or ks[0] > 0:
        ks, counts = np.insert(ks, 0, 0.0), np.insert(counts, 0, 0)
    return ks, np.cumsum(counts) / len(values)


@dataclass(frozen=True)
class Envelope:
    """The best of a pool per sample, by ascending row: its l0 and which of the pool found it first (−1: none)."""

    row: Integers
    l0: Floats
    winner: Integers


def envelope(pool: Sequence[Facts], unit: str = "feature") -> Envelope:
    """The best over attacks on the same rows, which may come in any order."""
    if not pool:
        raise ValueError("no attacks to take the best of: give the facts of one or more")
    row, best = _by_row(pool[0], unit)
    winner = np.where(np.isfinite(best), 0, -1)
    for place, facts in enumerate(pool[1:], start=1):
        other, l0 = _by_row(facts, unit)
        if not np.array_equal(other, row):
            differ = f"it lacks {few(np.setdiff1d(row, other))} and has besides {few(np.setdiff1d(other, row))}"
            raise ValueError(f"attack {place} of the pool was not run on the rows of attack 0: {differ}")
        winner[l0 < best] = place
        best = np.minimum(best, l0)
    return Envelope(row, best, winner.astype(np.int64))


def _by_row(facts: Facts, unit: str) -> tuple[Integers, Floats]:
    order = np.argsort(facts.row, kind="stable")
    row = np.asarray(facts.row, dtype=np.int64)[order]
    if (twice := row[1:][row[1:] == row[:-1]]).size:
        raise ValueError(f"these rows occur more than once: {few(np.unique(twice))}")
    return row, checked(changes(facts, unit))[order]
