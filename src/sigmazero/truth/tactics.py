"""Which tasks are worth a bound, and which bound: what each costs and how often it succeeds is measured.

Tasks go by *level*: the power of two that holds their longest range; boxes of values have levels below 0. A task may be
tried with the quick bound, with the full one, or halved at once, whatever costs least for all that follows.
"""

import math
from dataclasses import dataclass, field


@dataclass
class Tries:
    """What one bound did at one level."""

    tried: int = 0
    proved: int = 0
    seconds: float = 0.0

    def note(self, tried: int, proved: int, seconds: float) -> None:
        """Take tries in."""
        self.tried, self.proved, self.seconds = self.tried + tried, self.proved + proved, self.seconds + seconds

    @property
    def cost(self) -> float:
        """Seconds of one try."""
        return self.seconds / max(1, self.tried)

    @property
    def failure(self) -> float:
        """Share of tries that failed; never quite 0 or 1, since the next may be otherwise."""
        return (self.tried - self.proved + 0.1) / (self.tried + 0.2)


@dataclass
class Tactics:
    """Scores of the quick bound and, where that failed, of the full one, by level, for tasks of t ranges.

    A task of one level is 2^t tasks of the next, when all its ranges are halved; a box of values is two.
    """

    t: int = 1
    quick: dict[int, Tries] = field(default_factory=dict)
    full: dict[int, Tries] = field(default_factory=dict)

    def note(self, level: int, full: bool, tried: int, proved: int, seconds: float) -> None:
        """Take tries in."""
        if tried:
            (self.full if full else self.quick).setdefault(level, Tries()).note(tried, proved, seconds)

    def failure(self, level: int) -> float:
        """Share of the tasks of a level that neither bound proves; 1 where nothing was tried."""
        if level not in self.quick:
            return 1.0
        return self.quick[level].failure * (self.full[level].failure if level in self.full else 1.0)

    def choose(self, level: int) -> tuple[bool, bool]:
        """Whether to try the quick bound at a level, and the full one where that is not enough."""
        return self._best(level)[1]

    def _best(self, level: int) -> tuple[float, tuple[bool, bool]]:
        low = min([*self.quick, *self.full, level])
        cheapest = min((s.cost for s in self.quick.values()), default=0.0)
        cost = cheapest  # below all that is known: one quick bound is hoped to be enough
        best = (True, True)
        for at in range(low, level + 1):
            cost, best = self._level(at, cost * (2**self.t if at > 0 else 2))
        return cost, best

    def _level(self, at: int, split: float) -> tuple[float, tuple[bool, bool]]:
        """The least cost at one level, if halving a task costs so much, and how to reach it."""
        quick, full = self.quick.get(at), self.full.get(at)
        if quick is None and full is None:  # below a level that is known something may be gained, above it not yet
            below = at <= 0 or at < max([*self.quick, *self.full], default=0)
            return split, (below, below)
        tactics = [(split, (False, False))]
        if quick is not None:
            tactics.append((quick.cost + quick.failure * split, (True, False)))
            if full is not None:
                tactics.append((quick.cost + quick.failure * (full.cost + full.failure * split), (True, True)))
                tactics.append((full.cost + quick.failure * full.failure * split, (False, True)))
        elif full is not None:
            tactics.append((full.cost + full.failure * split, (False, True)))
        if at <= 0:  # sites cannot be halved further: something must be tried
            tactics = tactics[1:]
        return min(tactics)


def level(longest: int) -> int:
    """The level of tasks with a longest range of so many sites.

    >>> level(1), level(2), level(49), level(784)
    (0, 1, 6, 10)
    """
    return math.ceil(math.log2(longest))
