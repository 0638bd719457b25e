"""What a leaderboard's site is made from: for each model on each board the fewest changes of every sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from sigmazero.core import metrics
from sigmazero.report.intervals import Interval, wilson
from sigmazero.report.site.ranking import FIRST, Criterion
from sigmazero.store.facts import Floats, Integers

MAIN, RANDOM = "main", "random"


@dataclass(frozen=True)
class EntryCard:
    """What is told of a model: names and what they stand for, addresses by name, and what the doctor found."""

    name: str
    slug: str
    told: Mapping[str, str]
    links: Mapping[str, str] = field(default_factory=dict)
    findings: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True)
class Score:
    """A model on a board: per sample its number, class, fewest changes found and certified to be needed, and whose.

    `changes` is 0 for what is wrong as it is and infinite for what nobody fooled; `by`, `tool` and `date` are empty
    there. `track` is "main", or why the model has a track of its own; `classes` are the names of the classes.
    """

    card: EntryCard
    track: str
    rows: Integers
    labels: Integers
    changes: Floats
    lower: Floats
    by: Sequence[str]
    tool: Sequence[str]
    date: Sequence[str]
    classes: Sequence[str] | None = None

    def robust(self, k: float) -> float:
        """The share that nobody fooled with at most k changes: an upper bound of the robust accuracy."""
        return metrics.robust(self.changes, k)

    def certified(self, k: float) -> float:
        """The share that is certified to need more than k changes: a lower bound of it."""
        return metrics.robust(self.lower, k)

    def interval(self, k: float) -> Interval:
        """The 95 % interval of `robust`, for other rows of the same kind."""
        return wilson(round(self.robust(k) * len(self.changes)), len(self.changes))

    @cached_property
    def median(self) -> float:
        """The median of the fewest changes found."""
        return metrics.median(self.changes)

    @property
    def clean(self) -> float:
        """The share that is right as it is."""
        return self.robust(0)

    @property
    def bounded(self) -> bool:
        """Whether anything is certified beyond that a right sample needs one change."""
        return bool((self.lower > 1).any())

    @property
    def finders(self) -> list[str]:
        """Who holds a sample, from the one with the most."""
        names = [name for name in self.by if name]
        return sorted(set(names), key=lambda name: (-names.count(name), name))


@dataclass(frozen=True)
class ScoreBoard:
    """Models that compare: the same rows, unit and track, and the k of its columns."""

    name: str
    track: str
    data: str
    unit: str
    sha256: str
    ks: Sequence[int]
    scores: Sequence[Score]

    @property
    def anchor(self) -> str:
        """A name for links on the page."""
        return self.name if self.track == MAIN else f"{self.name}-{self.track}"

    @property
    def title(self) -> str:
        """What it is called."""
        return self.name if self.track == MAIN else f"{self.name}, {self.track}"

    @property
    def first(self) -> int:
        """The k that it is ranked by at first."""
        return int(FIRST) if FIRST in self.ks else self.ks[-1]

    def ranked(self, criterion: Criterion) -> list[tuple[int, Score]]:
        """From the most to the least robust, each with its rank; equals share one, and stand by the other criterion."""

        def worth(score: Score, by: Criterion) -> float:
            return score.median if by is None else score.robust(by)

        other = self.first if criterion is None else None
        order = sorted(self.scores, key=lambda s: (-worth(s, criterion), -worth(s, other), s.card.name))
        values = [worth(score, criterion) for score in order]
        return [(1 + values.index(value), score) for value, score in zip(values, order, strict=True)]


def boards_of(
    name: str, data: str, unit: str, sha256: str, ks: Sequence[int], scores: Sequence[Score]
) -> list[ScoreBoard]:
    """A board per track, the main one first."""
    tracks = sorted({score.track for score in scores}, key=lambda track: (track != MAIN, track))
    return [
        ScoreBoard(name, track, data, unit, sha256, ks, [score for score in scores if score.track == track])
        for track in tracks
    ]


def held_by(score: Score) -> dict[str, int]:
    """How many samples each finder holds."""
    return {name: int(np.sum(np.array(score.by) == name)) for name in score.finders}
