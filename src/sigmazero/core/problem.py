"""The problem of a run: which inputs, what counts as success, what may change."""

import math
from dataclasses import dataclass, replace
from numbers import Integral, Real

import torch
from torch import Tensor

from sigmazero.core.domain import Domain, Unit
from sigmazero.core.goal import Goal

RECORDS = 2  # points that a search keeps of each sample, all of which may have to be verified


@dataclass(frozen=True)
class Problem:
    """One batch and one question about it.

    ids     random numbers depend on them, the seed and the step alone
    budget  stop a sample at the first success with at most this many changes; None for the fewest
    start   a starting point per sample, in the user's units
    pool    inputs to look for a starting point in: all of the run's, so that it does not depend on the batch, or
            others if `pool_given`
    clean   queries of the check of a clean input: one in each number format that is used
    closing queries of an attack's limit that are left for the smallest values
    checks  queries that verify a point: two where the caller's float32 settings are not strict
    """

    goal: Goal
    domain: Domain
    ids: Tensor
    budget: int | None = None
    seed: int = 0
    start: Tensor | None = None
    pool: Tensor | None = None
    pool_given: bool = False
    clean: int = 1
    checks: int = 1
    closing: int = 0

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.ids)

    @property
    def x(self) -> Tensor:
        """Return the user's inputs."""
        return self.domain.user_x

    @property
    def y(self) -> Tensor:
        """Return the classes to leave or to reach."""
        return self.goal.y

    @property
    def unit(self) -> Unit:
        """Return what the user counts."""
        return self.domain.unit

    @property
    def sites(self) -> int:
        """Return how many things can change."""
        return self.domain.sites

    @property
    def reserve(self) -> int:
        """Return the most queries of a sample that the verification takes, and the smallest values before it."""
        return RECORDS * self.checks + self.closing

    @property
    def overhead(self) -> int:
        """Return the most queries of a sample that are not the attack's own."""
        return self.clean + self.reserve

    def within_budget(self, changes: Tensor) -> Tensor:
        """Return which numbers of changes the budget allows; any, if there is none."""
        return changes <= (math.inf if self.budget is None else self.budget)

    def rank(self, cost: Tensor, changes: Tensor) -> Tensor:
        """Return a number by which points are ordered: their cost, below every cost where the budget allows them."""
        if self.budget is None:
            return cost
        return torch.where(self.within_budget(changes), cost - self.domain.nothing, cost)

    def take(self, rows: Tensor) -> "Problem":
        """Return the same question about some of the rows."""
        start = None if self.start is None else self.start[rows]
        return replace(self, goal=self.goal.take(rows), domain=self.domain.take(rows), ids=self.ids[rows], start=start)


def whole(number: object) -> bool:
    """Return whether it is a whole number of any type; True and False are not.

    >>> whole(3), whole(3.0), whole(2.5), whole(float("nan")), whole("3"), whole(True)
    (True, True, False, False, False, False)
    """
    return not isinstance(number, bool) and isinstance(number, Real) and float(number).is_integer()


def integer(number: object) -> bool:
    """Return whether it is a whole number that can count steps: 3.0 cannot."""
    return not isinstance(number, bool) and isinstance(number, Integral)
