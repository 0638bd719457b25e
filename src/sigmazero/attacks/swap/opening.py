"""The first phase of σ-swap, in two forms; every query asks for the gradient too.

`Opening` takes steps of σ-zero. In between it tries whole new choices of sites, as often as these pay. A whole new
choice moves the sites of largest gradient × room to the ends of the box, one site fewer than the best example changes.
Where gradients can be trusted, the new point is often adversarial at once. Where they mislead, only σ-zero's small
steps find anything. Each sample mostly uses the way that has saved it more changes so far. In the first half σ-zero
works alone: early examples are poor, so a choice that beats one need not be good.

`Ladder` is the whole of σ-swap where queries are few. σ-zero alone needs twenty to thirty steps before its examples are
sparse; whole choices find most examples after a few queries. The ladder searches for the number of sites. Until a
choice succeeds, it multiplies the number by four. Where it would come to all sites, gradients mislead, and σ-zero goes
on alone. After a success the next number is the geometric mean of two: the fewest changes known, and the largest number
that failed, at most half of the first. When these are close, the second begins anew at half of the first.

    g      running gradient, by sites      n      sites of the next choice      low    the largest number that failed
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from sigmazero.attacks.exploring import Walker
from sigmazero.attacks.swap import sites
from sigmazero.attacks.swap.sites import Sources
from sigmazero.core import noise, ops
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Domain
from sigmazero.core.oracle import Oracle

WALK_SHARE, WALK_STEPS = 0.5, 20  # share of the steps for σ-zero alone, and how many they are at least
TRUST = 1.0  # how many proposals the first expectation of a source is worth
FIRST_SITES, GROWTH = 16, 4  # sites of the first choice, and the factor while nothing is found
MOMENTUM = 0.8  # of a ladder's running gradient: with 0.5 the search follows the last point too much
CLOSE_SHARE = 8  # low and the best number are close when they differ by an eighth; then low begins anew at half


@dataclass(frozen=True, kw_only=True)
class Beginning(Attack):
    """What both forms share: `walker` is the σ-zero that takes steps, `queries` the limit of the whole attack."""

    walker: Walker
    momentum: float = MOMENTUM
    queries: int
    name: str = "sigma-swap"
    steps: int

    paper: ClassVar[str] = "docs/evidence/stronger.md"
    unroll: ClassVar[int] = 1

    @property
    def step_cost(self) -> int:
        """Return the queries of a step: an answer and its gradient."""
        return 2

    def walk(self, i: Tensor, s: Any, point: Tensor, oracle: Oracle) -> tuple[Any, Tensor, Tensor]:
        """Ask about a point; return σ-zero's state after step i, the running gradient, and the margin."""
        answer = oracle.value_and_grad(point, oracle.goal.margin)
        downhill = answer.grad * ops.per_row(answer.value > 0, answer.grad)
        walk = self.walker.descend(i, s.walk, downhill, answer.fooled, oracle)
        return walk, torch.lerp(sites.scaled(oracle.domain, answer.grad), s.g, self.momentum), answer.value


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
class Opening(Beginning):
    """Each step is a step of σ-zero or a whole new choice; the other parameters are those of the search.

    `after` counts the steps of σ-zero that a ladder took before.
    """

    choices: float
    jitter: float
    after: int = 0

    def follow(self, oracle: Oracle, before: "Rung") -> State:
        """Go on with σ-zero where a ladder left it."""
        return replace(self.init(oracle), walk=before.walk)

    def init(self, oracle: Oracle) -> State:
        """Start as σ-zero does."""
        g = torch.zeros_like(oracle.domain.by_site(oracle.domain.x))
        tries = g.new_full((len(g), 2), TRUST)
        return State(
            self.walker.init(oracle),
            noise.source(oracle.problem.seed, oracle.problem.ids),
            g,
            sites.EXPECTED_SAVED * self.choices * tries,
            tries,
            sites.finished(oracle),
        )

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Ask about σ-zero's point or a whole new choice: for each sample, what pays better is likelier."""
        if not self.choices:
            walk, g, _ = self.walk(i + self.after, s, s.walk.a, oracle)
            return replace(s, walk=walk, g=g, done=sites.finished(oracle))
        d, best = oracle.domain, oracle.incumbents.best_cost
        u = noise.drawn(s.luck, i, d.sites + 2, d.x.dtype)
        wave, size, turn = torch.split(u, [d.sites, 1, 1], 1)
        ready = (oracle.incumbents.best_l0 <= d.sites) & (i >= max(WALK_SHARE * self.steps, WALK_STEPS))
        worth = (s.wins / s.tries) ** sites.FAVOUR
        chosen = (turn[:, 0] * worth.sum(1) < worth[:, 0]) & ready
        n = sites.fewer(d, oracle.incumbents.best_cost, size[:, 0])
        choice = sites.whole_choice(d, sites.ends(d, s.g), n, wave, self.jitter)
        point = torch.where(ops.per_row(chosen, d.x), choice.view_as(d.x), s.walk.a)
        walk, g, _ = self.walk(i + self.after, s, point, oracle)
        tries = torch.stack([chosen, ~chosen], 1) * ready[:, None]
        gained = tries * sites.saved(best, oracle.incumbents.best_cost)[:, None]
        known = sites.learn(Sources(s.wins, s.tries), gained, tries, TRUST)
        return State(
            walk=ops.choose(~chosen, walk, s.walk),
            luck=s.luck,
            g=g,
            wins=known.wins,
            tries=known.tries,
            done=sites.finished(oracle),
        )


@dataclass
class Rung:
    """One row per sample: σ-zero's own state; g is (rows, features of a site, sites).

    `clean` is the margin of the clean input, `m` the lowest one so far.
    """

    walk: Any
    walking: Tensor
    g: Tensor
    n: Tensor
    low: Tensor
    clean: Tensor
    m: Tensor
    done: Tensor

    def misled(self) -> Tensor:
        """Return the rows where no choice has taken an eighth of the margin: gradients seem to mislead there."""
        return self.m > self.clean * 7 / 8


@dataclass(frozen=True, kw_only=True)
class Ladder(Beginning):
    """Every step asks about a whole choice; the first one asks about the clean input.

    `after` counts the steps that another ladder took before.
    """

    after: int = 0

    def follow(self, oracle: Oracle, before: Rung) -> Rung:
        """Go on where another ladder ended."""
        del oracle
        return before

    def init(self, oracle: Oracle) -> Rung:
        """Start without a gradient."""
        low = torch.zeros_like(oracle.goal.y)
        g = torch.zeros_like(oracle.domain.by_site(oracle.domain.x))
        return Rung(
            walk=self.walker.init(oracle),
            walking=torch.zeros_like(low, dtype=torch.bool),
            g=g,
            n=torch.full_like(low, FIRST_SITES),
            low=low,
            clean=torch.full_like(g[:, 0, 0], torch.inf),
            m=torch.full_like(g[:, 0, 0], torch.inf),
            done=sites.finished(oracle),
        )

    def step(self, i: Tensor, s: Rung, oracle: Oracle) -> Rung:
        """Ask about the n best sites, then choose the next n."""
        i = i + self.after
        d, before = oracle.domain, oracle.incumbents.best_l0
        rungs = self.rungs(d)
        walking = torch.where(i == rungs, before > d.sites, s.walking)
        n = torch.where(i > 0, s.n.clamp(max=d.sites), 0)  # the first gradient is that of the clean input
        ends = sites.ends(d, s.g)
        point = sites.whole_choice(d, ends, n, torch.zeros_like(ends.gain), 0.0).view_as(d.x)
        point = torch.where(ops.per_row(walking, point), s.walk.a, point)
        walk, g, m = self.walk((i + 1 - rungs).clamp(min=0), s, point, oracle)
        best = oracle.incumbents.best_l0
        low = torch.where(best < before, s.low.minimum(best // 2), n).minimum(best - 1)
        low = torch.where(best - low <= (best // CLOSE_SHARE).clamp(min=1), best // 2, low)
        middle = (low * best).to(s.g).sqrt().long().maximum(low + 1).minimum(best - 1).clamp(min=1)
        more = torch.where(i > 0, n * GROWTH, s.n)
        return Rung(
            walk=ops.choose(walking | (i == 0), walk, s.walk),
            walking=walking,
            g=g,
            n=torch.where(best <= d.sites, middle, more),
            low=low,
            clean=torch.where(i > 0, s.clean, m),
            m=s.m.minimum(m),
            done=sites.finished(oracle),
        )

    @staticmethod
    def rungs(d: Domain) -> int:
        """Return the steps until all sites would be asked about: one for the clean input, then one for each number."""
        return 1 + max(1, math.ceil(math.log(d.sites / FIRST_SITES, GROWTH)))
