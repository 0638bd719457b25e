"""Points found elsewhere as an attack in the benchmark: nothing is searched, and every point is verified."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from sigmazero.core.attack import Attack
from sigmazero.core.inputs import check_inputs
from sigmazero.core.model import Ability
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count
from sigmazero.core.problem import Problem


@dataclass
class State:
    """One row per sample; all are done at once."""

    done: Tensor


@dataclass(frozen=True, kw_only=True)
class Points(Attack):
    """One point for each row number; `digest` is the hash of both, by which a store knows them."""

    name: str = "points"
    steps: Count = 1
    digest: str
    points: Any = field(compare=False, repr=False)
    numbers: Any = field(compare=False, repr=False)

    needs: ClassVar[Ability] = "labels"
    capturable: ClassVar[bool] = False
    paper: ClassVar[str] = "docs/bridges.md"
    version: ClassVar[int] = 2

    @classmethod
    def of(cls, points: Tensor, ids: Tensor | Sequence[int] | None, name: str) -> "Points":
        """Make the attack from points and the numbers of their rows: 0, 1, 2, ... unless others are given."""
        check_inputs(points)
        numbers = torch.arange(len(points)) if ids is None else torch.as_tensor(ids)
        if numbers.shape != points.shape[:1] or len(set(numbers.tolist())) < len(numbers):
            raise ValueError(f"ids of shape {tuple(numbers.shape)}: give {len(points)} row numbers, each once")
        points, numbers = points.detach().cpu().contiguous(), numbers.cpu().long()
        whole = hashlib.sha256(f"{points.dtype} {tuple(points.shape)}\n".encode())
        whole.update(points.numpy().tobytes())
        whole.update(numbers.numpy().tobytes())
        return cls(name=name, digest=whole.hexdigest(), points=points, numbers=numbers)

    def parameters(self) -> dict[str, Any]:
        """Return what identifies it."""
        return {"steps": self.steps, "digest": self.digest}

    def check(self, problem: Problem) -> None:
        """Refuse rows without a point."""
        super().check(problem)
        missing = ~torch.isin(problem.ids.cpu(), self.numbers)
        if bool(missing.any()):
            row = int(problem.ids.cpu()[missing][0])
            raise ValueError(
                f"{self.name} has no point for row {row}; give ids=, the numbers of the rows in their order"
            )
        if self.points.shape[1:] != problem.x.shape[1:]:
            shapes = f"{tuple(self.points.shape[1:])}, and inputs {tuple(problem.x.shape[1:])}"
            raise ValueError(f"{self.name} has points of shape {shapes}")

    def init(self, oracle: Oracle) -> State:
        """Claim every point that is allowed; the claims are verified like those of a search."""
        domain, incumbents = oracle.domain, oracle.incumbents
        order = self.numbers.argsort()
        places = order[torch.searchsorted(self.numbers[order], oracle.problem.ids.cpu())]
        found = domain.from_user(self.points[places].to(domain.x))
        count = domain.l0(found)
        good = domain.inside(found) & (count > 0)
        incumbents.push(good, found, count, oracle.worth(found), torch.zeros_like(count))
        return State(torch.zeros_like(incumbents.alive))

    def step(self, i: Tensor, state: State, oracle: Oracle) -> State:
        """Search nothing."""
        del i, oracle
        return State(torch.ones_like(state.done))
