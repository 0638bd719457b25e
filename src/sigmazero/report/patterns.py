"""What the samples of a run have in common: how many changes, of which classes, where, at what effort, with whom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sigmazero.core import metrics
from sigmazero.core.metrics import Floats, Outcome
from sigmazero.report import measure, spaces
from sigmazero.report.measure import Measured
from sigmazero.store.facts import CellInfo, Facts, Integers

BARS = 30  # of a histogram, at most
FAR = 2**32  # more than any input has features


def bins(found: Sequence[Floats], end: float) -> Floats:
    """The edges of bars that hold the same whole numbers of changes each; the first is for those from 1 on.

    >>> bins([np.array([1.0, 4.0])], 4.2), bins([np.array([90.0])], 95.0)[:3]
    (array([1., 2., 3., 4., 5.]), array([1., 4., 7.]))
    """
    last = max([1.0, *(float(l0[np.isfinite(l0) & (l0 <= end)].max(initial=0)) for l0 in found)])
    width = max(1, math.ceil(last / BARS))
    return np.arange(1, last + width + 1, width, dtype=np.float64)


@dataclass(frozen=True)
class Histogram:
    """How many samples need how many changes: per bar, without any, beyond the last bar, and never."""

    counts: Integers
    already: int
    beyond: int
    never: int


def histogram(l0: Floats, edges: Floats) -> Histogram:
    """The samples of a run by their changes.

    >>> histogram(np.array([0, 1, 1, 3, 9, np.inf]), np.array([1.0, 2, 3, 4]))
    Histogram(counts=array([2, 0, 1]), already=1, beyond=1, never=1)
    """
    finite = l0[np.isfinite(l0)]
    counts = np.histogram(finite[(finite >= edges[0]) & (finite < edges[-1])], edges)[0]
    beyond = int((finite >= edges[-1]).sum())
    return Histogram(counts, int((finite < edges[0]).sum()), beyond, len(l0) - len(finite))


@dataclass(frozen=True)
class ClassLine:
    """A class: its samples, the share right without changes, the median l0, and what they are mostly taken for.

    `fooled` is the share fooled within the budget; with a budget the median is not known.
    """

    label: int
    samples: int
    clean: float
    median: float | None
    fooled: float
    becomes: int | None
    share: float


def by_class(info: CellInfo, facts: Facts) -> list[ClassLine]:
    """A line per true class, in their order."""
    l0, found = measure.changes(facts, info.unit), facts.outcome == Outcome.FOUND
    made = []
    for label in np.unique(facts.label).tolist():
        mine = facts.label == label
        targets, counts = np.unique(facts.prediction[mine & found], return_counts=True)
        first = int(counts.argmax()) if len(counts) else None
        made.append(
            ClassLine(
                label,
                int(mine.sum()),
                float((facts.clean_prediction == facts.label)[mine].mean()),
                metrics.median(l0[mine]) if info.budget is None else None,
                metrics.average(facts.success[mine]),
                None if first is None else int(targets[first]),
                0.0 if first is None else float(counts[first] / counts.sum()),
            )
        )
    return made


def confusion(facts: Facts) -> tuple[list[int], Integers]:
    """The classes that occur, and how many examples found lead from each (down) to each (across)."""
    found = facts.outcome == Outcome.FOUND
    classes = np.unique(np.concatenate([facts.label[found], facts.prediction[found]]))
    made = np.zeros((len(classes), len(classes)), np.int64)
    pair = np.searchsorted(classes, facts.label[found]), np.searchsorted(classes, facts.prediction[found])
    np.add.at(made, pair, 1)
    return classes.tolist(), made


def fallen(info: CellInfo, facts: Facts) -> Floats:
    """For each site of a cell the share of the examples found in which it is changed; 0 if none was found."""
    found = facts.take(facts.outcome == Outcome.FOUND)
    sites = spaces.named_sites(info)
    owner = np.zeros(int(np.prod(info.about["shape"])), dtype=np.int64)
    for place, site in enumerate(sites):
        owner[list(site.members)] = place
    counts = _counted(found, owner, len(sites))
    counts[[site.derived for site in sites]] = 0  # what follows from others was not chosen
    return np.asarray(counts / max(len(found), 1), dtype=np.float64)


def heat(info: CellInfo, facts: Facts) -> Floats | None:
    """For each position of an image the share of the examples found in which it is changed; None of other inputs."""
    shape = info.about.get("shape")
    if shape is None or len(shape) != 3 or shape[0] not in (1, 3) or spaces.is_table(info):
        return None
    found, each = facts.take(facts.outcome == Outcome.FOUND), shape[1] * shape[2]
    counts = _counted(found, np.arange(math.prod(shape)) % each, each)
    return np.asarray(counts / max(len(found), 1), dtype=np.float64).reshape(shape[1:])


def _counted(found: Facts, owner: Integers, size: int) -> Integers:
    """In how many samples something of each owner is changed: once in a sample, however many of its features are."""
    sample = np.repeat(np.arange(len(found)), np.diff(found.offsets))
    pairs = np.unique(np.stack([sample, owner[found.index]]), axis=1)
    return np.bincount(pairs[1].astype(np.int64), minlength=size)


def effort(info: CellInfo, facts: Facts) -> Floats:
    """The queries after which each sample was fooled: infinite where it was not, 1 where it is wrong already.

    Stored are the queries of the whole search and the step that found the example. Steps are taken to cost the same;
    a run with a budget ends a sample once it is found, so there all queries count.
    """
    queries = (facts.forwards + facts.backwards).astype(np.float64)
    spent = (
        queries if info.budget is not None else queries * np.minimum(1.0, (facts.step_found + 1) / max(info.steps, 1))
    )
    found = np.where(facts.success, np.maximum(np.ceil(spent), 1.0), np.inf)
    return np.where(facts.outcome == Outcome.ALREADY, 1.0, found)


@dataclass(frozen=True)
class Agreement:
    """Two runs on the same samples, over those that both fooled by a change.

    overlap  mean share of changed features that both changed, of those that either did
    fewer    share of all samples for which the first needs fewer changes than the second
    more     share of all samples for which it needs more
    """

    overlap: float
    fewer: float
    more: float


def agreement(first: Measured, second: Measured) -> Agreement:
    """How far two attacks find the same; their facts have perturbations."""
    common = np.intersect1d(first[1].row, second[1].row)
    one, two = (facts.take(_places(facts.row, common)) for _, facts in (first, second))
    left, right = (measure.changes(each, first[0].unit) for each in (one, two))
    both = (one.outcome == Outcome.FOUND) & (two.outcome == Outcome.FOUND)
    shared = np.bincount(np.intersect1d(_numbered(one), _numbered(two), True) // FAR, minlength=len(common))
    either = np.diff(one.offsets) + np.diff(two.offsets) - shared
    overlap = metrics.average(shared[both] / np.maximum(either[both], 1))
    return Agreement(overlap, metrics.average(left < right), metrics.average(left > right))


def _places(rows: Integers, wanted: Integers) -> Integers:
    order = np.argsort(rows, kind="stable")
    return np.asarray(order[np.searchsorted(rows[order], wanted)], dtype=np.int64)


def _numbered(facts: Facts) -> Integers:
    """Every change as one number: its sample, and its feature."""
    return np.repeat(np.arange(len(facts)), np.diff(facts.offsets)) * FAR + facts.index
