r"""Genetic search without gradients, in any space, after the attack of https://github.com/pralab/elsa-cybersecurity.

That is how ELSA's malware challenge measures detectors, with about 5,000 queries. A generation crosses the best points
known and mutates the results. The children are asked about; the best of parents and children are the next parents.

    P    children of a generation        K    points that become parents
    m    margin of a child               m₀   margin of the clean input

A child takes each site from one of two parents. Then some of its changes are put back or get another value, and as many
other sites get a legal value at random. The lower max(m, 0) / m₀ + penalty · cost / cost of all sites, the better a
point. The first generation changes between none and all sites, evenly on a logarithmic scale.

The challenge fixes how many features are added, takes them from harmless apps, draws parents by tournament and stops at
the first success. Here their number is free and has a price, features come from the space alone, and the search goes on
for fewer changes.

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> result = sz.get("genetic", steps=10).run(model, torch.full((1, 4), 0.5), torch.tensor([0]))
>>> int(result.l0[0]), int(result.backwards[0]), int(result.forwards[0])
(2, 0, 503)
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from sigmazero.attacks.budget import movable
from sigmazero.core import noise
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Domain
from sigmazero.core.model import Ability
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count, NotNegative, Positive

OFTEN = 0.5  # largest chance of a site to mutate: where there are few, one must be able to stay


@dataclass
class State:
    """One row per sample: the parents (K, features of a site, sites), their scores (K), and m₀."""

    parents: Tensor
    scores: Tensor
    clean: Tensor
    done: Tensor


@dataclass(frozen=True, kw_only=True)
class Genetic(Attack):
    """Breed sets of changes from the better half of a population, by the scores of a model. It is known from attacks on
    malware detectors, and a baseline.
    """

    name: str = "genetic"
    steps: Annotated[Count, "generations"] = 100
    population: Annotated[Count, "points of a generation, each of them a query"] = 50
    parents: Annotated[Count, "points that the next generation comes from"] = 25
    mutations: Annotated[Positive, "how many changed sites of a child mutate, and how many others, on average"] = 2.0
    penalty: Annotated[NotNegative, "what changing every site would count, where the clean margin counts 1"] = 1.0

    asks: ClassVar[str] = "`population` queries a step"
    paper: ClassVar[str] = "https://github.com/pralab/elsa-cybersecurity"
    version: ClassVar[int] = 3
    needs: ClassVar[Ability] = "scores"
    finite_box: ClassVar[bool] = True
    unroll: ClassVar[int] = 1

    def init(self, oracle: Oracle) -> State:
        """Make every parent the clean input, without a query."""
        d = oracle.domain
        return State(
            parents=d.by_site(d.x)[:, None].repeat(1, self.parents, 1, 1),
            scores=d.x.new_full((len(d), self.parents), torch.inf),
            clean=d.x.new_ones(len(d)),
            done=torch.zeros_like(oracle.incumbents.alive),
        )

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Cross, mutate, ask, select."""
        d = oracle.domain
        children = self._children(i, s, oracle)
        points = children.view(len(d), self.population, *d.x.shape[1:])
        m = oracle.goal.margin(oracle.logits(points, copies=self.population))
        clean = torch.where(i == 0, m[:, 0], s.clean)
        scores = (m / clean.clamp(min=1e-30)[:, None]).clamp(min=0) + self.penalty * _cost(d, children)
        both = torch.cat([scores, s.scores], 1)  # of equal ones a child is taken: the search drifts on
        best = both.argsort(dim=1, stable=True)[:, : self.parents]
        every = torch.arange(len(d), device=best.device)[:, None]
        return State(
            parents=torch.cat([children, s.parents], 1)[every, best],
            scores=both.gather(1, best),
            clean=clean,
            done=oracle.incumbents.best_cost <= d.least(1),
        )

    def _children(self, i: Tensor, s: State, oracle: Oracle) -> Tensor:
        """Return the next generation, (rows, P, features of a site, sites)."""
        p, d = oracle.problem, oracle.domain
        u = noise.uniform(p.seed, p.ids, i, (self.population, d.sites + 3), dtype=d.x.dtype)
        pair, fate, coin = (u[..., :2] * self.parents).long(), u[..., 2:3], 2 * u[..., 3:]
        every = torch.arange(len(p), device=u.device)[:, None]
        one, other = (s.parents[every, which] for which in pair.unbind(2))
        child = torch.where((coin < 1)[:, :, None], one, other)
        x, free = d.by_site(d.x)[:, None], movable(d).any(1)[:, None]
        changed = (child != x).any(2)
        unchanged = ~changed & free
        many = torch.where(changed, changed.sum(2, keepdim=True), unchanged.sum(2, keepdim=True)).to(u.dtype)
        chance = torch.where(i == 0, self._first(free), (self.mutations / many.clamp(min=1)).clamp(max=OFTEN))
        mutated = (coin % 1 < chance) & (changed | unchanged)
        drawn = _drawn(i, oracle)[:, None]
        back = changed & ((fate < 0.5) | (child == drawn).all(2))
        return torch.where(mutated[:, :, None], torch.where(back[:, :, None], x, drawn), child)

    def _first(self, free: Tensor) -> Tensor:
        """Return the chance of a site to change in the first generation, (rows, P, 1): 0 for the first child."""
        j = torch.arange(self.population, dtype=torch.float64, device=free.device)[:, None]
        share = (j - 1) / max(self.population - 2, 1)
        many = free.sum(2, keepdim=True).clamp(min=1).double()
        return torch.where(j == 0, 0.0, torch.exp((share - 1) * torch.log(many)))


def _drawn(i: Tensor, oracle: Oracle) -> Tensor:
    """Return a legal value for every site, another than the clean one wherever there is any."""
    p, d = oracle.problem, oracle.domain
    u = noise.uniform(p.seed, p.ids, i, tuple(d.x.shape[1:]), stream=1, dtype=d.x.dtype)
    found, far = d.by_site(d.draw(u)), d.by_site(d.snap(d.far().view_as(d.x)))
    return torch.where((found == d.by_site(d.x)).all(1, keepdim=True), far, found)


def _cost(d: Domain, points: Tensor) -> Tensor:
    """Return the cost of points (rows, P, features of a site, sites), as a share of the cost of all sites."""
    changed = (points != d.by_site(d.x)[:, None]).any(2).to(d.x.dtype)
    return (changed * d.costs).sum(2) / d.costs.sum()
