"""What is known of each sample while a search goes on."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sigmazero.core.problem import Problem


@dataclass
class Tally:
    """What is known of each sample so far; the first dimension of every field is the batch.

    `points` holds the last few records of each sample, newest and best first, so that a record which does not
    survive its verification has a successor; `counts` and `step_found` belong to them. A search that is not exact also
    keeps `sure`, the best point that was confirmed so far, its `sure_l0` and `sure_step`, and as `spare` the one that
    was confirmed before it, should a last answer contradict an earlier one. `given_up` counts records that fresh
    answers did not hold. A check of a point asks `checks` times. Where some changes cost more than others, `costs` has
    what records are compared by (`Problem.rank`), and the lowest is the best.
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
    sure: Tensor | None = None
    sure_l0: Tensor | None = None
    sure_step: Tensor | None = None
    sure_cost: Tensor | None = None
    spare: Tensor | None = None
    spare_l0: Tensor | None = None
    spare_step: Tensor | None = None
    costs: Tensor | None = None
    checks: int = 1

    @classmethod
    def start(cls, problem: Problem, depth: int, exact: bool = True) -> "Tally":
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
            sure=None if exact else x.clone(),
            sure_l0=None if exact else torch.full_like(zeros, domain.sites + 1),
            sure_step=None if exact else torch.full_like(zeros, -1),
            sure_cost=None if exact or not domain.weighted else torch.zeros_like(zeros, dtype=x.dtype) + domain.nothing,
            spare=None if exact else x.clone(),
            spare_l0=None if exact else torch.full_like(zeros, domain.sites + 1),
            spare_step=None if exact else torch.full_like(zeros, -1),
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
    def sure_worth(self) -> Tensor:
        """The same of the best confirmed points."""
        found = self.sure_l0 if self.sure_cost is None else self.sure_cost
        assert found is not None  # in every search that needs to confirm
        return found

    @property
    def best(self) -> Tensor:
        """The sparsest adversarial point so far; the clean input where nothing was found."""
        return self.points[:, 0]
