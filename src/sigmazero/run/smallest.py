"""The smallest sufficient values: the last part of a search in a space that asks for them.

An attack says which fields to change, and mostly takes their ends. Here each number that it changed goes back towards
its clean value, by halves, as long as the goal stays reached with the same changes. A value with whole steps stops
at the last step that still reaches it. The point found before stays behind it as the second record.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from sigmazero.core.attack import Attack
from sigmazero.core.incumbents import Incumbents
from sigmazero.core.model import Ability
from sigmazero.core.ops import per_row
from sigmazero.core.oracle import Oracle
from sigmazero.run.search import Phase, ignore, search

STEPS = 64  # most queries of a sample
SHARE = 0.1  # part of an attack's limit that is left for them


@dataclass
class State:
    """One row per sample: the point, the sites (N, S) that are left, and between which shares of the way one lies.

    `moved` says whether the point is another one than the attack found.
    """

    a: Tensor
    left: Tensor
    low: Tensor
    high: Tensor
    moved: Tensor
    done: Tensor


@dataclass(frozen=True, kw_only=True)
class Smallest(Attack):
    """Move changed numbers back, one site after the other, the one that moved furthest first."""

    name: str = "smallest values"
    steps: int = STEPS
    queries: int | None = None

    needs: ClassVar[Ability] = "labels"
    paper: ClassVar[str] = "docs/spaces.md"

    def init(self, oracle: Oracle) -> State:
        """Begin at the best point known."""
        d, a = oracle.domain, oracle.incumbents.best
        left = (d.by_site(a) != d.by_site(d.x)).any(1) & d.finest.isfinite()
        one = d.x.new_ones(len(d))
        oracle.retire(~left.any(1))
        return State(a, left, 0 * one, one, one < 0, ~left.any(1))

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Ask about the middle of the way that is left."""
        del i
        d, incumbents = oracle.domain, oracle.incumbents
        x, a = d.by_site(d.x), d.by_site(s.a)
        far = (a - x).abs().amax(1).masked_fill(~s.left, -1)
        site = far.argmax(1, keepdim=True)
        mine = torch.zeros_like(s.left).scatter(1, site, True)
        middle = (s.low + s.high) / 2
        back = x + per_row(middle / s.high, a) * (a - x)
        point = d.snap(torch.where(mine[:, None], back, a).view_as(s.a))
        before = incumbents.best_cost
        fooled = oracle.goal.margin(oracle.logits(point)) < 0
        same = (point == s.a).flatten(1).all(1)
        fewer = incumbents.best_cost < before
        good = fewer | (fooled & ~same & d.inside(point) & (oracle.worth(point) <= before))
        _put(incumbents, good & ~fewer, good & ~fewer & ~s.moved, point)
        low, high = torch.where(good, s.low, middle), torch.where(good, middle, s.high)
        ended = (high - low <= d.finest[site[:, 0]]) | same | fewer
        new = torch.where(per_row(good, point), point, s.a)
        left = s.left & ~(mine & ended[:, None]) & (d.by_site(new) != x).any(1)
        moved = (s.moved | good) & ~fewer
        return State(new, left, low.masked_fill(ended, 0), high.masked_fill(ended, 1), moved, ~left.any(1))


def _put(incumbents: Incumbents, where: Tensor, first: Tensor, point: Tensor) -> None:
    """Put a point in front; where it is the first one, what the attack found stays behind it."""
    counts, worth, steps = incumbents.counts[:, 0], incumbents.worth[:, 0], incumbents.step_found[:, 0]
    incumbents.push(first, point, counts, worth, steps)
    points = torch.cat([point[:, None], incumbents.points[:, 1:]], 1)
    incumbents.points = torch.where(per_row(where & ~first, points), points, incumbents.points)


def reserved(attack: Attack) -> int:
    """Return how many queries of an attack's limit are left for the smallest values."""
    return 0 if attack.limit is None else int(SHARE * attack.limit)


def shrunk(incumbents: Incumbents, oracle: Oracle, limit: int | None) -> Incumbents:
    """Go on from what a search has found; `oracle` is one of all its rows."""
    d = oracle.domain
    oracle.problem = replace(oracle.problem, budget=None, closing=0)
    some = incumbents.best_l0 <= d.sites
    alive = some & ~incumbents.broken
    worth = torch.stack([oracle.worth(point) for point in incumbents.points.unbind(1)], 1)
    worth = torch.where(incumbents.counts <= d.sites, worth, d.nothing).to(incumbents.worth.dtype)
    oracle.incumbents = replace(incumbents, alive=alive, worth=worth)
    return search([Phase(Smallest(queries=limit))], oracle, ignore)
