"""The whole of σ-swap where queries are few: whole choices of sites, their number found by halves.

A choice moves the n sites of largest gain, by the running gradient, to the ends of the box. Until one succeeds, n is
multiplied by four; where all sites fail, σ-zero looks for the first example. Then the next n lies between the best
number known and the largest that has failed since the gradient was last good for that, at their geometric mean. σ-zero
alone needs twenty to thirty steps before its examples are sparse; here most come after a few queries.

    n      sites of the next choice      low    the largest number that failed      g    running gradient, by sites
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from sigmazero.attacks.budget import start_again
from sigmazero.attacks.exploring import Walker
from sigmazero.attacks.swap import sites
from sigmazero.core import ops
from sigmazero.core.attack import Attack
from sigmazero.core.oracle import Oracle

COST = 2  # queries of a step
BEGIN, GROWTH = 16, 4  # sites of the first choice, and the factor while nothing is found
MOMENTUM = 0.8  # of the running gradient: with 0.5 the search follows the last point too much
CLOSE = 8  # low and the best number are close when they differ by an eighth; then low begins anew at half


@dataclass
class State:
    """One row per sample: σ-zero's own state; g is (rows, features of a site, sites)."""

    walk: Any
    g: Tensor
    n: Tensor
    low: Tensor
    done: Tensor


@dataclass(frozen=True, kw_only=True)
class Ladder(Attack):
    """Every step asks about a whole choice, and for the gradient there; the first one asks about the clean input."""

    walker: Walker
    queries: int
    name: str = "sigma-swap"
    steps: int

    paper: ClassVar[str] = "docs/evidence/stronger.md"
    unroll: ClassVar[int] = 1

    @property
    def limit(self) -> int:
        """The most queries of a sample."""
        return self.queries

    @property
    def step_cost(self) -> int:
        """Queries of a step."""
        return COST

    def init(self, oracle: Oracle) -> State:
        """Start without a gradient."""
        low = torch.zeros_like(oracle.goal.y)
        g = torch.zeros_like(oracle.domain.by_site(oracle.domain.x))
        return State(self.walker.init(oracle), g, torch.full_like(low, BEGIN), low, sites.finished(oracle))

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Ask about the n best sites, then choose the next n."""
        d, before = oracle.domain, oracle.incumbents.best_l0
        rungs = 2 + max(0, math.ceil(math.log(d.sites / BEGIN, GROWTH)))  # steps until all sites were asked about
        walking = (before > d.sites) & (i >= rungs)
        n = torch.where(i > 0, s.n.clamp(max=d.sites), 0)  # the first gradient is that of the clean input
        ends = sites.ends(d, s.g)
        point = sites.whole_choice(d, ends, n, torch.zeros_like(ends.gain), 0.0).view_as(d.x)
        point = torch.where(ops.per_row(walking, point), s.walk.a, point)
        answer = oracle.value_and_grad(point, oracle.goal.margin)
        downhill = answer.grad * ops.per_row(answer.value > 0, answer.grad)
        walk = self.walker.descend((i + 1 - rungs).clamp(min=0), s.walk, downhill, answer.fooled, oracle)
        best = oracle.incumbents.best_l0
        low = torch.where(best < before, s.low, n).minimum(best - 1)
        low = torch.where(best - low <= (best // CLOSE).clamp(min=1), best // 2, low)
        middle = (low * best).to(s.g).sqrt().long().maximum(low + 1).minimum(best - 1).clamp(min=1)
        more = torch.where(i > 0, n * GROWTH, s.n).clamp(max=d.sites)
        return State(
            walk=start_again(walking | (i == 0), walk, s.walk),
            g=torch.lerp(sites.scaled(d, answer.grad), s.g, MOMENTUM),
            n=torch.where(best <= d.sites, middle, more),
            low=low,
            done=sites.finished(oracle),
        )
