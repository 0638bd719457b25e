"""A walk that also looks elsewhere, for domains with legal values between the ends, over which a walk jumps.

After the first fifth of the steps every other one asks about a variation instead: of the walk's point until an example
is known (the walk then goes on from there), later of the best example, while that has few changes.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from sigmazero.core import losses, noise, ops
from sigmazero.core.attack import Attack
from sigmazero.core.oracle import Oracle

WALK_SHARE = 0.2  # share of the steps in which the walk is left alone
MAX_VARIED = 4  # an example with more changes is not varied
RETURN_CHANCE, STAY_CHANCE = 0.5, 0.1  # that a site goes back, and that it stays; else it is drawn anew
MEAN_JOINING = 1.5  # unchanged sites that are resampled as well, on average, where some changes cost more than others


@runtime_checkable
class Walker(Protocol):
    """An attack like σ-zero: its state has a point `a`, and a caller with the gradient there can take its next step."""

    @property
    def steps(self) -> int:
        """Return how many steps it was made for."""

    @property
    def loss(self) -> str:
        """Return the name of the loss it descends on."""

    def init(self, oracle: Oracle) -> Any:
        """Return the state before the first step."""

    def descend(self, i: Tensor, s: Any, g: Tensor, fooled: Tensor, oracle: Oracle) -> Any:
        """Return the state after step i, given the gradient of the loss at the point."""


@dataclass(frozen=True, kw_only=True)
class Exploring(Attack):
    """Steps of a walker, an attack like σ-zero, every other one at a variation."""

    name: str = "sigma-zero"
    steps: int
    walker: Walker

    paper: ClassVar[str] = "docs/spaces.md"

    def init(self, oracle: Oracle) -> Any:
        """Start as the walker does."""
        return self.walker.init(oracle)

    def step(self, i: Tensor, s: Any, oracle: Oracle) -> Any:
        """Ask about the walk's point or about a variation, then let the walker descend."""
        d, incumbents, point = oracle.domain, oracle.incumbents, s.a
        nothing = incumbents.best_l0 > d.sites
        few = incumbents.best_l0 <= MAX_VARIED
        elsewhere = (i >= self.walker.steps * WALK_SHARE) & (i % 2 == 1) & (nothing | few)
        if d.x.is_cuda or bool(elsewhere.any()):  # on a device nothing is looked at
            around = torch.where(ops.per_row(nothing, point), point, incumbents.best)
            point = torch.where(ops.per_row(elsewhere, point), self.vary(i, around, nothing, oracle), point)
        answer = oracle.value_and_grad(point, losses.get(self.walker.loss, oracle.goal))
        first = elsewhere & nothing & answer.fooled  # the walk goes on from the first example
        s = replace(s, a=torch.where(ops.per_row(first, point), point, s.a))
        return self.walker.descend(i, s, answer.grad, answer.fooled, oracle)

    def vary(self, i: Tensor, a: Tensor, anything: Tensor, oracle: Oracle) -> Tensor:
        """Put some changed sites back and resample others; with `anything` unchanged sites may be resampled too."""
        d, free = oracle.domain, ops.per_row(anything, a)
        fate, drawn = d.first_channel(self._draw(i, 5, oracle)), d.draw(self._draw(i, 6, oracle))
        drawn = torch.where(drawn.isfinite(), drawn, a)  # a feature may have no end to go to
        drawn = torch.where(free | d.changed(a), drawn, d.x)
        back = torch.where(free, RETURN_CHANCE / 2, RETURN_CHANCE)
        a = torch.where(fate < back, d.x, torch.where(fate < back + STAY_CHANCE, a, drawn))
        return self._joined(i, a, anything, oracle) if d.weighted else a

    def _joined(self, i: Tensor, a: Tensor, anything: Tensor, oracle: Oracle) -> Tensor:
        """Resample some unchanged sites, where the point still costs less than the best example.

        A cheap example may change other sites than the best one known, and more of them.
        """
        d = oracle.domain
        fate, drawn = d.first_channel(self._draw(i, 7, oracle)), d.draw(self._draw(i, 8, oracle))
        drawn = torch.where(drawn.isfinite() & ~d.changed(a), drawn, a)
        more = d.snap(torch.where(fate * d.sites < MEAN_JOINING, drawn, a))
        return torch.where(ops.per_row(anything | (oracle.worth(more) >= oracle.incumbents.best_cost), a), a, more)

    def _draw(self, i: Tensor, stream: int, oracle: Oracle) -> Tensor:
        p, x = oracle.problem, oracle.domain.x
        return noise.uniform(p.seed, p.ids, i, tuple(x.shape[1:]), stream=stream, dtype=x.dtype)
