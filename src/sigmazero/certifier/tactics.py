"""Which tasks are worth a bound, and which bound: what each costs and how often it succeeds is measured.

Tasks go by *level*: the power of two that holds their longest range; boxes of values have levels below 0. A task may be
tried with some of the bounds, from the cheapest on, or halved at once, whatever costs least for all that follows.
"""

import itertools
import math
from dataclasses import dataclass, field

from sigmazero.certifier.bounds import Effort


@dataclass
class Tries:
    """What one bound did at one level."""

    tried: int = 0
    proved: int = 0
    cost: float = math.inf  # seconds of one try, in the batch where that was least: small ones tell of the calls alone

    def note(self, tried: int, proved: int, seconds: float) -> None:
        """Take a batch of tries in."""
        self.tried, self.proved = self.tried + tried, self.proved + proved
        self.cost = min(self.cost, seconds / tried)

    @property
    def failure(self) -> float:
        """Share of tries that failed; never quite 0 or 1, since the next may be otherwise."""
        return (self.tried - self.proved + 0.1) / (self.tried + 0.2)


@dataclass
class Tactics:
    """Scores of each kind of bound, by level, for tasks of t ranges; stronger ones are scored where weaker ones failed.

    A task of one level is 2^t tasks of the next, when all its ranges are halved; a box of values is two.
    """

    t: int = 1
    scores: dict[int, dict[Effort, Tries]] = field(default_factory=dict)

    def note(self, level: int, effort: Effort, tried: int, proved: int, seconds: float) -> None:
        """Take tries in."""
        if tried:
            self.scores.setdefault(level, {}).setdefault(effort, Tries()).note(tried, proved, seconds)

    def failure(self, level: int) -> float:
        """Share of the tasks of a level that no bound proves; 1 where nothing was tried."""
        return math.prod(each.failure for each in self.scores.get(level, {}).values())

    def choose(self, level: int) -> tuple[Effort, ...] | None:
        """Which bounds to try at a level, one after the other; None where all should be, since nothing is known."""
        return self._best(level)[1]

    def _best(self, level: int) -> tuple[float, tuple[Effort, ...] | None]:
        low = min([*self.scores, level])
        # Below all that is known one cheap bound is hoped to be enough.
        cost = min((each.cost for known in self.scores.values() for each in known.values()), default=0.0)
        best: tuple[Effort, ...] | None = None
        for at in range(low, level + 1):
            cost, best = self._level(at, cost * (2**self.t if at > 0 else 2))
        return cost, best

    def _level(self, at: int, split: float) -> tuple[float, tuple[Effort, ...] | None]:
        """The least cost at one level, if halving a task costs so much, and how to reach it."""
        known = self.scores.get(at)
        if known is None:  # below a level that is known something may be gained, above it not yet
            below = at <= 0 or at < max(self.scores, default=0)
            return split, None if below else ()
        kinds = sorted(known)
        tactics = []
        for count in range(len(kinds) + 1):
            for chosen in itertools.combinations(kinds, count):
                tactics.append((self._cost(at, chosen, split), chosen))
        if at <= 0 and at - 1 not in self.scores:  # nobody knows that something is proved further down
            tactics = tactics[1:]
        return min(tactics)

    def _cost(self, at: int, chosen: tuple[Effort, ...], split: float) -> float:
        """What a task costs if these bounds are tried: a stronger one proves whatever a weaker one does."""
        cost, left, failed, known = 0.0, 1.0, 1.0, self.scores[at]
        for kind in sorted(known):
            failed *= known[kind].failure
            if kind in chosen:
                cost, left = cost + left * self._once(at, kind), failed
        return cost + left * split

    def _once(self, at: int, kind: Effort) -> float:
        """Seconds of one bound at a level: no more than where more may change."""
        return min(known[kind].cost for level, known in self.scores.items() if level >= at and kind in known)


def level(longest: int) -> int:
    """The level of tasks with a longest range of so many sites.

    >>> level(1), level(2), level(49), level(784)
    (0, 1, 6, 10)
    """
    return math.ceil(math.log2(longest))
