"""Figures over per-sample facts: pure functions, no model and no file.

`l0` is always one number per sample, infinite where the sample was not fooled, and every share is a share of ALL
samples. Queries are those of `Result`: the clean check and the final verification count, the paper leaves them out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from sigmazero.core.result import Outcome
from sigmazero.store.facts import CellInfo, Facts, Floats, Integers

Interval = tuple[float, float]
Rule = Literal["trapezoid", "step"]
Cell = tuple[CellInfo, Facts]
Figures = dict[str, float | None]
TableRow = dict[str, str | float | None]

KS = (10, 24, 50)
SHOWN = 5  # rows or cells that an error names
DRAWS = 4_000_000  # counts that a bootstrap holds at a time: 32 MB
NAMES = ("model", "dataset", "attack", "version", "steps", "unit", "goal", "budget", "seed", "precision")
# What may not differ within a table, and among which cells: those alike in that, or all.
ALIKE = {"version": "attack", "precision": None, "unit": None, "data_hash": "dataset", "model_sha256": "model"}


def asr(l0: ArrayLike, k: float = math.inf) -> float:
    """Share of all samples fooled with at most k changes; k = ∞ asks for those fooled at all.

    >>> asr([0, 3, 12, np.inf], 10), asr([0, 3, 12, np.inf])
    (0.5, 0.75)
    """
    values = _checked(l0)
    if not k >= 0:
        raise ValueError(f"k={k}: a number of changes is 0 or more")
    return float(np.count_nonzero(values <= k if math.isfinite(k) else np.isfinite(values))) / len(values)


def median(l0: ArrayLike) -> float:
    """The middle value, failures as infinity; the mean of the two middle ones if the number of samples is even.

    >>> median([1, 4, np.inf]), median([1, 2, 4, np.inf]), median([1, np.inf])
    (4.0, 3.0, inf)
    """
    values = _checked(l0)
    low, high = (len(values) - 1) // 2, len(values) // 2
    ordered = np.partition(values, (low, high))
    return float(ordered[low] + ordered[high]) / 2


def mean(l0: ArrayLike) -> float:
    """The mean over all samples: infinite as soon as one was not fooled."""
    return float(_checked(l0).mean())


def curve(l0: ArrayLike) -> tuple[Floats, Floats]:
    """The k where the success rate jumps, 0 first, and the rate from each of them to the next.

    >>> [each.tolist() for each in curve([3, 3, 7, np.inf])]
    [[0.0, 3.0, 7.0], [0.0, 0.5, 0.75]]
    """
    values = _checked(l0)
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
    return float(np.minimum(_checked(l0), _finite_k(k_max)).mean())


def trapezoidal_area(l0: ArrayLike, k_max: float) -> float:
    """The area as AttackBench takes it: straight lines between the distances that occur, cut off at k_max.

    It is smaller than `area`: the lines cut the corners of the steps, what is left of the smallest distance is not
    counted, and at k_max the robust accuracy is 0 even if samples are left.

    >>> trapezoidal_area([0, 2, np.inf, 4], 4)
    1.75
    """
    ks, counts = np.unique(np.minimum(_checked(l0), _finite_k(k_max)), return_counts=True)
    robust = 1 - np.cumsum(counts) / counts.sum()
    return float(np.sum(np.diff(ks) * (robust[1:] + robust[:-1]) / 2))


def local_optimality(l0: ArrayLike, best: ArrayLike, rule: Rule = "trapezoid") -> float:
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
    mine, pool = _pair(l0, best)
    if (below := np.flatnonzero(mine < pool)).size:
        better = f"sample {below[0]} has l0 {mine[below[0]]:g}, the best of the pool is {pool[below[0]]:g}"
        raise ValueError(f"{better}: make the envelope from a pool with this attack in it, in the same order")
    reached = pool[np.isfinite(pool)]
    limit = float(reached.max()) if reached.size else 0.0
    ideal = rules[rule](pool, limit)
    room = float(np.count_nonzero(pool)) / len(pool) * limit - ideal
    # Rounding alone can leave a little where nothing is.
    return 1 - (rules[rule](mine, limit) - ideal) / room if room > 1e-12 * limit else math.nan


def global_optimality(local: Iterable[float]) -> float:
    """AttackBench's global optimality: the mean of an attack's local ones over models; NaN if one of them is."""
    return float(np.mean(_some(np.asarray(list(local), dtype=np.float64))))


def optimality(cells: Sequence[Cell], rule: Rule = "trapezoid") -> dict[str, float]:
    """Local optimality by cell key, for the cells of one model, data, goal and unit.

    Cells with a budget take part in the envelope but are not scored: they did not look for the fewest changes.
    """
    infos = [info for info, _ in cells]
    for name in ("model_sha256", "data_hash", "goal", "unit"):
        if len({getattr(info, name) for info in infos}) > 1:
            raise ValueError(f"the cells differ in {name}, so they have no common best: {_named(infos, name)}")
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
            differ = f"it lacks {_few(np.setdiff1d(row, other))} and has besides {_few(np.setdiff1d(other, row))}"
            raise ValueError(f"attack {place} of the pool was not run on the rows of attack 0: {differ}")
        winner[l0 < best] = place
        best = np.minimum(best, l0)
    return Envelope(row, best, winner.astype(np.int64))


def wilson(successes: int, n: int, level: float = 0.95) -> Interval:
    """Wilson's score interval for a share.

    >>> [round(end, 4) for end in wilson(81, 263)]
    [0.2553, 0.3662]
    """
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"{successes} successes of {n}: there must be one sample or more, and 0 to n successes")
    z = NormalDist().inv_cdf(1 - _tail(level))
    share, spread = successes / n, z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return (0.0 if successes == 0 else centre - half), (1.0 if successes == n else centre + half)


def bootstrap_median(l0: ArrayLike, level: float = 0.95, seed: int = 0, resamples: int = 10_000) -> Interval:
    """Bootstrap interval of the median, by percentiles; an end is infinite where the median may be.

    >>> bootstrap_median([1, 2, 3, 4, 5, np.inf, np.inf])
    (2.0, inf)
    """
    ordered = np.sort(_checked(l0))
    n = len(ordered)
    low, high = (n - 1) // 2, n // 2
    rng = _rng(seed, resamples)
    # A resample is n uniform draws of a place in `ordered`; its median needs only the middle ones of them. The j-th
    # smallest of n uniforms has a beta distribution, and so has the gap to the next: nothing of size n is drawn.
    first = rng.beta(low + 1, n - low, resamples)
    second = first + (1 - first) * rng.beta(1, n - low - 1, resamples) if high > low else first
    places = [np.minimum((u * n).astype(np.int64), n - 1) for u in (first, second)]
    return _percentiles((ordered[places[0]] + ordered[places[1]]) / 2, level)


def paired_bootstrap(
    a: ArrayLike, b: ArrayLike, level: float = 0.95, seed: int = 0, resamples: int = 10_000, cap: float = math.inf
) -> Interval:
    """Bootstrap interval of the mean of a − b over samples, by percentiles; `a` and `b` in the same order.

    A sample that neither fools makes no difference. One that only one fools makes an infinite one; `cap`, say the
    number of features, stands for infinity instead.

    >>> paired_bootstrap([3, 4, np.inf], [3, 4, np.inf])
    (0.0, 0.0)
    """
    left, right = (np.minimum(each, cap) for each in _pair(a, b))
    alike = left == right  # also where both are infinite, and their difference would be none
    steps, counts = np.unique(np.where(alike, 0.0, left - np.where(alike, 0.0, right)), return_counts=True)
    if steps[0] == -math.inf and steps[-1] == math.inf:
        raise ValueError("each side fails where the other does not, so there is no mean difference: give a cap")
    finite = np.isfinite(steps)
    rng, at_once = _rng(seed, resamples), max(1, DRAWS // len(steps))
    means: list[Floats] = []
    for start in range(0, resamples, at_once):
        # How often each difference is drawn is all that a resample is.
        drawn = rng.multinomial(len(left), counts / len(left), size=min(at_once, resamples - start))
        part = drawn[:, finite] @ steps[finite] / len(left)
        means.append(np.where(drawn[:, ~finite].any(axis=1), steps[~finite].sum(), part))
    return _percentiles(np.concatenate(means), level)


def changes(facts: Facts, unit: str) -> Floats:
    """l0 in a unit: that of the cell, `info.unit`, for its own figures."""
    if unit not in ("feature", "pixel"):
        raise ValueError(f"unit={unit!r}: choose one of feature, pixel")
    return np.asarray(facts.l0_pixel if unit == "pixel" else facts.l0, dtype=np.float64)


def summary(info: CellInfo, facts: Facts, ks: Sequence[float] = KS, level: float | None = None) -> Figures:
    """The figures one reports of a cell; with `level` also the ends of their intervals.

    A run with a budget ends a sample once the budget suffices, and some attacks look no further than the budget. So
    it tells the success rate at its budget and nothing else: below it there is but a lower bound, and medians and
    means would be made of numbers that nothing made small. Those figures are None, never a bound in disguise.
    """
    if not len(facts):
        raise ValueError(f"cell {info.key} ({info.attack} on {info.model}) has no samples yet: leave it out, or run it")
    l0 = changes(facts, info.unit)
    free, n = info.budget is None, len(l0)
    asked = sorted({*map(float, ks), math.inf, *([] if info.budget is None else [float(info.budget)])})
    outcomes = np.bincount(facts.outcome, minlength=len(Outcome)) / n
    figures: Figures = {
        "samples": n,
        "missing": info.rows - n,
        "clean_accuracy": float(np.mean(facts.clean_prediction == facts.label)),
        "already_wrong": float(outcomes[Outcome.ALREADY]),
    }
    for k in asked:
        known = free or k == info.budget
        figures[f"asr_{k:.15g}"] = asr(l0, k) if known else None
        if level is not None:
            low, high = wilson(round(asr(l0, k) * n), n, level) if known else (None, None)
            figures |= {f"asr_{k:.15g}_low": low, f"asr_{k:.15g}_high": high}
    found = l0[np.isfinite(l0)]
    figures |= {
        "median_l0": median(l0) if free else None,
        "mean_l0": mean(l0) if free else None,
        "mean_l0_found": float(found.mean()) if free and found.size else None,
    }
    if level is not None:
        low, high = bootstrap_median(l0, level) if free else (None, None)
        figures |= {"median_l0_low": low, "median_l0_high": high}
    forwards, backwards = float(np.mean(facts.forwards)), float(np.mean(facts.backwards))
    return figures | {
        "forwards": forwards,
        "backwards": backwards,
        "kqueries": (forwards + backwards) / 1000,
        "seconds": float(np.mean(facts.seconds)),
        **{each.name.lower(): float(outcomes[each]) for each in list(Outcome)[Outcome.NON_FINITE :]},
    }


def table(
    cells: Iterable[Cell], ks: Sequence[float] = KS, mix: bool = False, level: float | None = None
) -> list[TableRow]:
    """What identifies each cell, and its summary: one row per cell, with the same headings in all.

    Success rates are those at `ks` and at every budget among the cells. Facts without perturbations will do. A table
    of cells that do not compare is refused, as `refuse_mixture` says, unless `mix` allows it.
    """
    chosen = list(cells)
    if not mix:
        refuse_mixture([info for info, _ in chosen])
    asked = [*ks, *(info.budget for info, _ in chosen if info.budget is not None)]
    return [
        {"cell": info.key, **{name: getattr(info, name) for name in NAMES}, **summary(info, facts, asked, level)}
        for info, facts in chosen
    ]


def refuse_mixture(infos: Iterable[CellInfo]) -> None:
    """Raise if cells differ in what a reader takes to be the same in one table.

    That is the version of an attack, the precision, the unit, the rows of a data set and the weights of a model. Steps,
    budgets, goals and seeds may differ: a table shows them.
    """
    everything = list(infos)
    for name, among in ALIKE.items():
        groups: dict[str, list[CellInfo]] = {}
        for info in everything:
            groups.setdefault(f"{among} {getattr(info, among)}" if among else "the cells", []).append(info)
        for group, members in groups.items():
            if len({getattr(info, name) for info in members}) > 1:
                fix = "leave all but one out, or give mix=True to have them side by side"
                raise ValueError(f"{group}: more than one {name} in a table ({_named(members, name)}); {fix}")


def _named(infos: Sequence[CellInfo], name: str) -> str:
    """For an error: the values of a field, and under each some of the cells that have it."""
    values: dict[str, list[str]] = {}
    for info in infos:
        values.setdefault(str(getattr(info, name)), []).append(info.key)
    return "; ".join(f"{value}: cells {_few(keys)}" for value, keys in values.items())


def _few(items: Sequence[object] | Integers) -> str:
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return (", ".join(str(item) for item in items[:SHOWN]) or "none") + more


def _by_row(facts: Facts, unit: str) -> tuple[Integers, Floats]:
    order = np.argsort(facts.row, kind="stable")
    row = np.asarray(facts.row, dtype=np.int64)[order]
    if (twice := row[1:][row[1:] == row[:-1]]).size:
        raise ValueError(f"these rows occur more than once: {_few(np.unique(twice))}")
    return row, _checked(changes(facts, unit))[order]


def _some(values: Floats) -> Floats:
    if values.ndim != 1 or not len(values):
        raise ValueError(f"an array of shape {values.shape}: there must be one dimension and one value or more")
    return values


def _checked(l0: ArrayLike) -> Floats:
    values = _some(np.asarray(l0, dtype=np.float64))
    if not values.min() >= 0:  # NaN is not either
        wrong = int(np.flatnonzero(~(values >= 0))[0])
        raise ValueError(f"l0 of sample {wrong} is {values[wrong]:g}; it must be 0 or more, and infinity for a failure")
    return values


def _pair(a: ArrayLike, b: ArrayLike) -> tuple[Floats, Floats]:
    left, right = _checked(a), _checked(b)
    if len(left) != len(right):
        raise ValueError(f"{len(left)} samples against {len(right)}: both must be about the same rows, in one order")
    return left, right


def _finite_k(k_max: float) -> float:
    if not (math.isfinite(k_max) and k_max >= 0):
        raise ValueError(f"k_max={k_max}: it must be finite and 0 or more")
    return k_max


def _tail(level: float) -> float:
    """What an interval leaves out on either side."""
    if not 0 < level < 1:
        raise ValueError(f"level={level}: it must lie between 0 and 1, such as 0.95")
    return (1 - level) / 2


def _rng(seed: int, resamples: int) -> np.random.Generator:
    if resamples < 1:
        raise ValueError(f"resamples={resamples}: it must be 1 or more")
    return np.random.default_rng(seed)


def _percentiles(values: Floats, level: float) -> Interval:
    """The ends between which a share of `level` lies, each a value that occurs: between infinities is no mean."""
    ordered = np.sort(values)
    low = math.floor(_tail(level) * (len(ordered) - 1))
    return float(ordered[low]), float(ordered[len(ordered) - 1 - low])
