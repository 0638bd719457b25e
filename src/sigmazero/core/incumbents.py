"""The incumbents of a search: the best points of each sample so far, and how often it asked."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sigmazero.core.problem import Problem


@dataclass
class Incumbents:
    """The best points of each sample so far and its counts; the first dimension of every field is the batch.

    points       the last few records of each sample, best first: a record that fails verification has a successor
    counts       their changes; `step_found` the steps that found them
    costs        numbers by which records are compared (`Problem.rank`) where some changes cost more than others
    confirmed    the best point that was confirmed so far, in a search that is not exact, with its `confirmed_l0`,
                 `confirmed_step` and `confirmed_cost`
    previous     the point confirmed before that one, should a last answer contradict an earlier one
    given_up     number of records that fresh answers did not confirm
    checks       how often a check of a point asks the model
    """

    points: Tensor
    counts: Tensor
    step_found: Tensor
    forwards: Tensor
    backwards: Tensor
    broken: Tensor
    unstarted: Tensor
    alive: Tensor
    given_up: Tensor
    confirmed: Tensor | None = None
    confirmed_l0: Tensor | None = None
    confirmed_step: Tensor | None = None
    confirmed_cost: Tensor | None = None
    previous: Tensor | None = None
    previous_l0: Tensor | None = None
    previous_step: Tensor | None = None
    costs: Tensor | None = None
    checks: int = 1

    @classmethod
    def start(cls, problem: Problem, depth: int, exact: bool = True) -> "Incumbents":
        """The clean input was asked about; nothing is found."""
        domain = problem.domain
        x, n = domain.x, len(problem)
        zeros = torch.zeros(n, dtype=torch.int64, device=x.device)
        return cls(
            points=x[:, None].repeat(1, depth, *[1] * (x.ndim - 1)),
            counts=torch.full((n, depth), domain.sites + 1, device=x.device),
            step_found=torch.full((n, depth), -1, device=x.device),
            forwards=torch.full_like(zeros, problem.checks),
            backwards=zeros,
            broken=torch.zeros_like(zeros, dtype=torch.bool),
            unstarted=torch.zeros_like(zeros, dtype=torch.bool),
            alive=torch.ones_like(zeros, dtype=torch.bool),
            given_up=torch.zeros_like(zeros),
            confirmed=None if exact else x.clone(),
            confirmed_l0=None if exact else torch.full_like(zeros, domain.sites + 1),
            confirmed_step=None if exact else torch.full_like(zeros, -1),
            confirmed_cost=None
            if exact or not domain.weighted
            else torch.zeros_like(zeros, dtype=x.dtype) + domain.nothing,
            previous=None if exact else x.clone(),
            previous_l0=None if exact else torch.full_like(zeros, domain.sites + 1),
            previous_step=None if exact else torch.full_like(zeros, -1),
            costs=x.new_zeros(n, depth) + domain.nothing if domain.weighted else None,
            checks=problem.checks,
        )

    @property
    def best_l0(self) -> Tensor:
        """Fewest changes so far; one more than there are sites where nothing was found."""
        return self.counts[:, 0]

    @property
    def best_cost(self) -> Tensor:
        """What the best point is compared by: its changes, if all cost alike; more than all sites if there is none."""
        return self.best_l0 if self.costs is None else self.costs[:, 0]

    @property
    def worth(self) -> Tensor:
        """What records are compared by, (N, records): `Problem.rank`, or their number of changes if all cost alike."""
        return self.counts if self.costs is None else self.costs

    @property
    def confirmed_worth(self) -> Tensor:
        """The same of the best confirmed points."""
        found = self.confirmed_l0 if self.confirmed_cost is None else self.confirmed_cost
        assert found is not None  # in every search that needs to confirm
        return found

    @property
    def best(self) -> Tensor:
        """The sparsest adversarial point so far; the clean input where nothing was found."""
        return self.points[:, 0]
