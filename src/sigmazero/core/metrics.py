"""The figures of a run: each is one function of arrays with an entry per sample, and is computed nowhere else.

A function registered with `@metric` is part of `Result.summary()`, of the records of a store and of the tables made
from them. The number of changes is infinite where a sample was not fooled, and every share is a share of ALL samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
FigureKind = Literal["share", "l0", "number"]
MetricOf = Literal["run", "store"]

DEFAULT_KS = (10, 24, 50)  # the numbers of changes that success rates are given at, unless others are asked for
FEWER_KS = (1, 2, 5, 10, 25)  # the same for tables, whose inputs have tens of features and not thousands
SMALL_IMAGE = 50  # sites, or fewer: the usual numbers would be most of it


class Outcome(IntEnum):
    """How a sample ended; `result.outcome` has one of these numbers for each."""

    #: The clean input reaches the goal: nothing to change, l0 is 0.
    ALREADY = 0
    #: An adversarial point was found and verified, within the budget if there is one.
    FOUND = 1
    #: Nothing was found within the steps; l0 is infinite, as in 3 to 6.
    NOT_FOUND = 2
    #: The model returned NaN or Inf before anything was found.
    NON_FINITE = 3
    #: Something was found, but a fresh forward pass did not confirm it.
    UNVERIFIED = 4
    #: The attack needs a starting point and found none.
    NO_START = 5
    #: The model answered no more before this sample was done: its queries were spent, or it failed.
    STOPPED = 6
    #: An adversarial point was found and verified, but with more changes than the budget allows: no success.
    BEYOND_BUDGET = 7


def fitting_ks(shape: Sequence[int], sites: int | None = None) -> tuple[float, ...]:
    """Return numbers of changes to give success rates at, for inputs of a shape with a number of sites.

    >>> fitting_ks((1, 28, 28)), fitting_ks((12,)), fitting_ks((181,)), fitting_ks((3, 4, 4), 16), fitting_ks((1,))
    ((10, 24, 50), (1, 2, 5, 10), (1, 2, 5, 10, 25), (1, 2, 5, 10), (1,))
    """
    most = math.prod(shape) if sites is None else sites
    chosen = DEFAULT_KS if len(shape) > 1 and most > SMALL_IMAGE else FEWER_KS
    return tuple(k for k in chosen if k < most) or (1,)


def fitting_costs(cost: Floats) -> tuple[float, ...]:
    """Return costs to give success rates at: multiples of the cheapest change, given the cost of each site.

    >>> fitting_costs(np.array([0.5, 2.0, 3.0])), fitting_costs(np.array([1.0, 4.0, 1.0]))
    ((0.5, 1.0, 2.5, 5.0), (1.0, 2.0, 5.0))
    """
    cheapest, most = float(cost.min()), float(cost.sum())
    return tuple(k * cheapest for k in FEWER_KS if k * cheapest < most) or (cheapest,)


@dataclass(frozen=True)
class Samples:
    """The arrays that figures are computed from, with one entry per sample; `label` has the true classes, if known.

    `returned` has the changes of the points that the method returns by its own rule; None without such a rule.
    `least` has the proved numbers of changes that any attack needs; None if nothing is proved.
    """

    changes: Floats
    outcome: NDArray[Any]
    forwards: NDArray[Any]
    backwards: NDArray[Any]
    seconds: Floats
    clean_prediction: NDArray[Any]
    label: NDArray[Any] | None = None
    returned: Floats | None = None
    least: Floats | None = None

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.changes)


@dataclass(frozen=True)
class Metric:
    """A figure: its names, how it is computed, and how it is shown.

    name      its key in dictionaries and its column in CSV files
    compute   a function of the samples, and of k if `at_k`; None means unknown
    over      the array of the samples that the function takes; all of them by default
    title     its name in the table of one run
    heading   its name in the narrow columns of other tables
    kind      a share, a number of changes, or another number
    decimals  most decimals shown, unless it is a share
    better    1 if more of it makes a stronger attack, −1 if less does, 0 if neither
    free      whether it is unknown for a run with a budget; a figure at k is known where k is the budget
    at_k      whether it is a figure for each k; `k` is then the one it was taken at
    hidden    whether it is only in dictionaries, not in tables
    seldom    whether a hidden figure is shown where it is known, since few methods have it
    of        whether runs have it, stores, or both
    """

    name: str
    compute: Callable[..., float | None]
    title: str
    heading: str
    over: str | None = None
    kind: FigureKind = "number"
    decimals: int = 2
    better: int = 0
    free: bool = False
    at_k: bool = False
    hidden: bool = False
    seldom: bool = False
    of: tuple[MetricOf, ...] = ("run", "store")
    k: float | None = None

    def at(self, k: float) -> Metric:
        """Return this figure at k; itself if it does not depend on k."""
        if not self.at_k:
            return self
        shown = "∞" if math.isinf(k) else f"{k:g}"
        return replace(
            self,
            name=f"{self.name}_{k:.15g}",
            compute=partial(self.compute, k=k),
            title=f"{self.title} {shown}",
            heading=f"{self.heading} {shown}",
            at_k=False,
            k=k,
        )

    def known(self, budget: int | None) -> bool:
        """Return whether a run with this budget (None for none) determines it."""
        return budget is None or not self.free or self.k == budget

    def value(self, samples: Samples) -> float | None:
        """Return the figure of these samples; NaN if there are none, None if it is unknown."""
        given = samples if self.over is None else getattr(samples, self.over)
        return self.compute(given) if len(samples) else math.nan


METRICS: dict[str, Metric] = {}
Compute = TypeVar("Compute", bound=Callable[..., float | None])


def metric(
    name: str, *, title: str | None = None, heading: str | None = None, **more: Any
) -> Callable[[Compute], Compute]:
    """Register a function as a figure; the arguments are fields of `Metric`. Without a title its name is shown."""

    def register(compute: Compute) -> Compute:
        if name in METRICS:
            raise ValueError(f"there is a metric {name!r} already; choose another name")
        words = name.replace("_", " ") if title is None else title
        METRICS[name] = Metric(name, compute, words, words if heading is None else heading, **more)
        return compute

    return register


def figures(of: MetricOf, ks: Sequence[float]) -> list[Metric]:
    """Return the figures of a run or of a store; those that depend on k, once for each of `ks`."""
    chosen = [each for each in METRICS.values() if of in each.of]
    return [each.at(k) for each in chosen for k in (ks if each.at_k else (math.inf,))]


def checked(changes: ArrayLike) -> Floats:
    """Return numbers of changes as an array; refuse other values."""
    values = np.asarray(changes, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"an array of shape {values.shape}: there must be one dimension and one value or more")
    if not values.min() >= 0:  # NaN is not either
        wrong = int(np.flatnonzero(~(values >= 0))[0])
        raise ValueError(f"l0 of sample {wrong} is {values[wrong]:g}; it must be 0 or more, and infinity for a failure")
    return values


def average(values: ArrayLike) -> float:
    """Return the mean; of booleans that is the share that is true, of nothing NaN.

    >>> average([True, False]), average([])
    (0.5, nan)
    """
    found = np.asarray(values)
    return float(found.mean()) if found.size else math.nan


def robust(changes: ArrayLike, k: float = math.inf) -> float:
    """Return the share of all samples that k changes do not fool.

    >>> robust([0, 3, 12, np.inf], 10)
    0.5
    """
    return average(~_fooled(changes, k))


def _fooled(changes: ArrayLike, k: float) -> NDArray[np.bool_]:
    values = checked(changes)
    if not k >= 0:
        raise ValueError(f"k={k}: a number of changes is 0 or more")
    return values <= k if math.isfinite(k) else np.isfinite(values)


# The figures, in the order in which tables have them -----------------------------------------------------------------


@metric("clean_accuracy", heading="clean", kind="share")
def clean_accuracy(samples: Samples) -> float | None:
    """Return the share classified right without any change."""
    return None if samples.label is None else average(samples.clean_prediction == samples.label)


def _ended(outcomes: NDArray[Any], outcome: Outcome) -> float:
    return average(outcomes == outcome)


metric("already_wrong", over="outcome", kind="share", hidden=True)(partial(_ended, outcome=Outcome.ALREADY))


@metric("success", over="outcome", kind="share", hidden=True, of=("run",))
def success(outcomes: NDArray[Any]) -> float:
    """Return the share of all samples fooled within what was asked for, the budget included."""
    return average(np.isin(outcomes, (Outcome.ALREADY, Outcome.FOUND)))


@metric("asr", over="changes", title="ASR at", heading="ASR", kind="share", better=1, free=True, at_k=True)
def asr(changes: ArrayLike, k: float = math.inf) -> float:
    """Return the attack success rate: the share of all samples fooled with at most k changes.

    >>> asr([0, 3, 12, np.inf], 10), asr([0, 3, 12, np.inf])
    (0.5, 0.75)
    """
    return average(_fooled(changes, k))


@metric("median_l0", over="changes", heading="median", kind="l0", decimals=1, better=-1, free=True)
def median(changes: ArrayLike) -> float:
    """Return the middle value, failures as infinity; of two middle values the mean.

    >>> median([1, 4, np.inf]), median([1, 2, 4, np.inf]), median([1, np.inf])
    (4.0, 3.0, inf)
    """
    values = checked(changes)
    low, high = (len(values) - 1) // 2, len(values) // 2
    ordered = np.partition(values, (low, high))
    return float(ordered[low] + ordered[high]) / 2


@metric("mean_l0", over="changes", heading="mean", kind="l0", free=True)
def mean(changes: ArrayLike) -> float:
    """Return the mean over all samples: infinite if one was not fooled."""
    return average(checked(changes))


@metric("mean_l0_found", over="changes", kind="l0", free=True, hidden=True)
def mean_found(changes: ArrayLike) -> float:
    """Return the mean over the samples that were fooled."""
    values = checked(changes)
    return average(values[np.isfinite(values)])


@metric("returned_asr", title="ASR returned", kind="share", better=1, free=True, hidden=True, seldom=True)
def returned_asr(samples: Samples) -> float | None:
    """Return the share of all samples fooled by the point that the method returned, which may not be its best."""
    return None if samples.returned is None else asr(samples.returned)


@metric("returned_median_l0", title="median returned", kind="l0", decimals=1, free=True, hidden=True, seldom=True)
def returned_median(samples: Samples) -> float | None:
    """Return the median over all samples of the changes of the point that the method returned."""
    return None if samples.returned is None else median(samples.returned)


@metric("median_least", heading="median ≥", kind="l0", decimals=1, hidden=True, seldom=True, of=("store",))
def median_least(samples: Samples) -> float | None:
    """Return the median of the proved lower bounds; the true median lies between it and the median found."""
    return None if samples.least is None else median(samples.least)


@metric("proved", kind="share", at_k=True, hidden=True, seldom=True, of=("store",))
def proved(samples: Samples, k: float = math.inf) -> float | None:
    """Return the share of all samples proved to stay right with k changes; None if it is 0."""
    found = 0.0 if samples.least is None else average(samples.least > k)
    return found or None


metric("forwards", over="forwards", hidden=True)(average)
metric("backwards", over="backwards", hidden=True)(average)


@metric("queries", title="queries per sample", decimals=1, of=("run",))
def queries(samples: Samples) -> float:
    """Return forward and backward passes per sample."""
    return average(samples.forwards + samples.backwards)


@metric("kqueries", decimals=3, of=("store",))
def kqueries(samples: Samples) -> float:
    """Return the same in thousands."""
    return (average(samples.forwards) + average(samples.backwards)) / 1000


metric("seconds_per_sample", over="seconds", decimals=4, of=("run",))(average)
metric("seconds", over="seconds", heading="s", decimals=4, of=("store",))(average)
for _outcome in (Outcome.NON_FINITE, Outcome.UNVERIFIED, Outcome.NO_START):
    metric(_outcome.name.lower(), over="outcome", kind="share", hidden=True)(partial(_ended, outcome=_outcome))
