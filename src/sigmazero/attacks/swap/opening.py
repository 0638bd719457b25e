"""The first phase of σ-swap: steps of σ-zero, and in between whole new choices of sites, as often as they pay.

A whole new choice moves the sites of largest gradient × room to the ends of the box, one site fewer than the best
example changes. Where gradients can be trusted that is often adversarial at once; where they mislead, only σ-zero's
small steps get anywhere. Every query asks for the gradient, which serves both, and each sample mostly does what has
saved it more changes so far. The first half is σ-zero alone: to beat an early, poor example is no sign of quality.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from sigmazero.attacks.budget import start_again
from sigmazero.attacks.exploring import Walker
from sigmazero.attacks.swap import sites
from sigmazero.attacks.swap.sites import Sources
from sigmazero.core import noise, ops
from sigmazero.core.attack import Attack
from sigmazero.core.oracle import Oracle

COST = 2  # queries of a step
ALONE, FIRST = 0.5, 20  # share of the steps for σ-zero alone, and how many they are at least
TRUST = 1.0  # how many proposals the first expectation of a source is worth


@dataclass
class State:
    """One row per sample: σ-zero's own state, the running gradient by sites, what whole choices and σ-zero saved.

    `luck` is the source of random numbers; wins and tries are (rows, 2).
    """

    walk: Any
    luck: Tensor
    g: Tensor
    wins: Tensor
    tries: Tensor
    done: Tensor


@dataclass(frozen=True, kw_only=True)
class Opening(Attack):
    """Each step is one of σ-zero (`walker`) or a whole new choice; the other parameters are those of the search."""

    walker: Walker
    choices: float
    momentum: float
    jitter: float
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
        """Start as σ-zero does."""
        g = torch.zeros_like(oracle.domain.by_site(oracle.domain.x))
        tries = g.new_full((len(g), 2), TRUST)
        return State(
            self.walker.init(oracle),
            noise.source(oracle.problem.seed, oracle.problem.ids),
            g,
            sites.USUAL * self.choices * tries,
            tries,
            sites.finished(oracle),
        )

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Ask about σ-zero's point, or about a whole new choice, each sample as it pays."""
        if not self.choices:
            walk, g = self._asked(i, s, s.walk.a, oracle)
            return replace(s, walk=walk, g=g, done=sites.finished(oracle))
        d, best = oracle.domain, oracle.incumbents.best_cost
        u = noise.drawn(s.luck, i, d.sites + 2, d.x.dtype)
        wave, size, turn = torch.split(u, [d.sites, 1, 1], 1)
        ready = (oracle.incumbents.best_l0 <= d.sites) & (i >= max(ALONE * self.steps, FIRST))
        worth = (s.wins / s.tries) ** sites.FAVOUR
        chosen = (turn[:, 0] * worth.sum(1) < worth[:, 0]) & ready
        n = sites.fewer(oracle, size[:, 0])
        choice = sites.whole_choice(d, sites.ends(d, s.g), n, wave, self.jitter)
        point = torch.where(ops.per_row(chosen, d.x), choice.view_as(d.x), s.walk.a)
        walk, g = self._asked(i, s, point, oracle)
        asked = torch.stack([chosen, ~chosen], 1) * ready[:, None]
        gained = asked * sites.saved(best, oracle.incumbents.best_cost)[:, None]
        known = sites.learn(Sources(s.wins, s.tries), gained, asked, TRUST)
        return State(
            walk=start_again(~chosen, walk, s.walk),
            luck=s.luck,
            g=g,
            wins=known.wins,
            tries=known.tries,
            done=sites.finished(oracle),
        )

    def _asked(self, i: Tensor, s: State, point: Tensor, oracle: Oracle) -> tuple[Any, Tensor]:
        """Ask about a point; return σ-zero's state after a step with that gradient, and the running gradient."""
        answer = oracle.value_and_grad(point, oracle.goal.margin)
        downhill = answer.grad * ops.per_row(answer.value > 0, answer.grad)
        walk = self.walker.descend(i, s.walk, downhill, answer.fooled, oracle)
        return walk, torch.lerp(sites.scaled(oracle.domain, answer.grad), s.g, self.momentum)
