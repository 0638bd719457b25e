"""The incumbents of a search: the best points of each sample so far, and its queries."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sigmazero.core.ops import per_row
from sigmazero.core.problem import RECORDS, Problem


@dataclass
class Incumbents:
    """The best points of each sample so far and its counts; the first dimension of every field is the batch.

    points       the best points of each sample, best first: the second is verified where the first one fails
    counts       their changes; one more than there are sites where nothing was found
    worth        what points are compared by, lowest best: `Problem.rank`, or their changes where all cost alike
    step_found   the steps that found them, −1 for none
    forwards     queries of each sample; `backwards` those that asked for a gradient
    broken       where the model answered with NaN or Inf
    unstarted    where the attack found no starting point
    alive        which samples are still searched
    own          after a search: the points that the method returns by its own rule, where it has one
    """

    points: Tensor
    counts: Tensor
    worth: Tensor
    step_found: Tensor
    forwards: Tensor
    backwards: Tensor
    broken: Tensor
    unstarted: Tensor
    alive: Tensor
    own: Tensor | None = None

    @classmethod
    def start(cls, problem: Problem) -> "Incumbents":
        """Return those of a search that has asked about the clean input and found nothing."""
        domain, n = problem.domain, len(problem)
        x, counts = domain.x, torch.full((n, RECORDS), domain.sites + 1, device=domain.x.device)
        zeros = torch.zeros(n, dtype=torch.int64, device=x.device)
        return cls(
            points=x[:, None].repeat(1, RECORDS, *[1] * (x.ndim - 1)),
            counts=counts,
            worth=x.new_zeros(n, RECORDS) + domain.nothing if domain.weighted else counts.clone(),
            step_found=torch.full_like(counts, -1),
            forwards=zeros + problem.clean,
            backwards=zeros,
            broken=torch.zeros_like(zeros, dtype=torch.bool),
            unstarted=torch.zeros_like(zeros, dtype=torch.bool),
            alive=torch.ones_like(zeros, dtype=torch.bool),
        )

    @property
    def best(self) -> Tensor:
        """Return the best point of each sample; the clean input where nothing was found."""
        return self.points[:, 0]

    @property
    def best_l0(self) -> Tensor:
        """Return the changes of the best point; one more than there are sites where nothing was found."""
        return self.counts[:, 0]

    @property
    def best_cost(self) -> Tensor:
        """Return what the best point is compared by; more than any point where nothing was found."""
        return self.worth[:, 0]

    def push(self, where: Tensor, point: Tensor, count: Tensor, worth: Tensor, step: Tensor) -> None:
        """Put a record in front of the others where `where` says so; the last one drops out."""
        for name, new in {"points": point, "counts": count, "worth": worth, "step_found": step}.items():
            earlier = getattr(self, name)
            pushed = torch.cat([new[:, None], earlier[:, :-1]], 1)
            setattr(self, name, torch.where(per_row(where, earlier), pushed, earlier))
