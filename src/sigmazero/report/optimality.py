"""How close attacks come to the best of all: success over k, areas, the envelope of a pool, and AttackBench's scores.

`l0` is always one number per sample, infinite where the sample was not fooled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from sigmazero.core.metrics import Floats, checked
from sigmazero.report.intervals import paired
from sigmazero.report.measure import Measured, changes, few, named
from sigmazero.store.facts import Facts, Integers

AreaRule = Literal["trapezoid", "step"]


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


def area(l0: ArrayLike, k_max: float) -> float:
    """Area under the robust accuracy (the share with l0 > k) for k from 0 to k_max, exact: it is a step function.

    Each sample is a step of height 1/n that lasts up to its l0, so the area is the mean of min(l0, k_max).

    >>> area([0, 2, np.inf, 4], 4)
    2.5
    """
    return float(np.minimum(checked(l0), _finite_k(k_max)).mean())


def trapezoidal_area(l0: ArrayLike, k_max: float) -> float:
    """The area as AttackBench takes it: straight lines between the distances that occur, cut off at k_max.

    It is smaller than `area`: the lines cut the corners of the steps, what is left of the smallest distance is not
    counted, and at k_max the robust accuracy is 0 even if samples are left.

    >>> trapezoidal_area([0, 2, np.inf, 4], 4)
    1.75
    """
    ks, counts = np.unique(np.minimum(checked(l0), _finite_k(k_max)), return_counts=True)
    robust = 1 - np.cumsum(counts) / counts.sum()
    return float(np.sum(np.diff(ks) * (robust[1:] + robust[:-1]) / 2))


def local_optimality(l0: ArrayLike, best: ArrayLike, rule: AreaRule = "trapezoid") -> float:
    """AttackBench's optimality of an attack on one model: 1 if it is nowhere worse than the best of the pool.

    ξ = 1 − (A − A*) / (acc · ε − A*), where ε is the largest finite value of `best` (the envelope of the pool, in the
    order of `l0`), acc the share of samples with best > 0, and A and A* the areas under the robust accuracy of the
    attack and of the envelope up to ε. `rule` says how areas are taken: "trapezoid" as AttackBench's code does, "step"
    exactly. ξ is relative to the pool: a better attack in it lowers everyone else. By the trapezoid it may exceed 1, as
    what is left of an attack's smallest distance is not counted. A sample that nothing in the pool fools counts as ε
    in both areas; AttackBench drops it from the envelope alone. NaN where nothing tells attacks apart (no sample was
    fooled, or the denominator is 0).

    >>> round(local_optimality([0, 4, 6, np.inf], [0, 2, 4, 6]), 4)
    0.6667
    >>> round(local_optimality([0, 4, 6, np.inf], [0, 2, 4, 6], rule="step"), 4)
    0.3333
    """
    rules: dict[str, Callable[[ArrayLike, float], float]] = {"trapezoid": trapezoidal_area, "step": area}
    if rule not in rules:
        raise ValueError(f"rule={rule!r}: choose one of {', '.join(rules)}")
    mine, pool = paired(l0, best)
    if (below := np.flatnonzero(mine < pool)).size:
        better = f"sample {below[0]} has l0 {mine[below[0]]:g}, the best of the pool is {pool[below[0]]:g}"
        raise ValueError(f"{better}: make the envelope from a pool with this attack in it, in the same order")
    reached = pool[np.isfinite(pool)]
    limit = float(reached.max()) if reached.size else 0.0
    ideal = rules[rule](pool, limit)
    room = float(np.count_nonzero(pool)) / len(pool) * limit - ideal
    # Rounding alone can leave a little where nothing is.
    return 1 - (rules[rule](mine, limit) - ideal) / room if room > 1e-12 * limit else math.nan


def optimality(cells: Sequence[Measured], rule: AreaRule = "trapezoid") -> dict[str, float]:
    """Local optimality by cell key, for the cells of one model, data, goal and unit.

    Cells with a budget take part in the envelope but are not scored: they did not look for the fewest changes.
    """
    infos = [info for info, _ in cells]
    for name in ("model_sha256", "data_hash", "goal", "unit", "space"):
        if len({getattr(info, name) for info in infos}) > 1:
            raise ValueError(f"the cells differ in {name}, so they have no common best: {named(infos, name)}")
    best = envelope([facts for _, facts in cells], infos[0].unit if infos else "feature")
    return {
        info.key: local_optimality(_by_row(facts, info.unit)[1], best.l0, rule)
        for info, facts in cells
        if info.budget is None
    }


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


def _finite_k(k_max: float) -> float:
    if not (math.isfinite(k_max) and k_max >= 0):
        raise ValueError(f"k_max={k_max}: it must be finite and 0 or more")
    return k_max
