r"""Query swap: σ-swap's search on a model that gives scores and no gradients (docs/blackbox.md).

The search exchanges changed sites as swap search does (see _swap), guided by slopes that it learns from its own
queries (see _slopes) instead of the model's gradient. It begins with a coarse look at all sites (see _probe). Where a
network is at hand that resembles the model, pass it as `surrogate`: the search then begins with what fools that network
(see _transfer), and goes on as without it. What the network is asked is not counted.

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> result = sz.get("query-swap", steps=60).run(model, torch.full((1, 4), 0.5), torch.tensor([0]))
>>> int(result.l0[0]), int(result.backwards[0])
(2, 0)
"""

from dataclasses import dataclass, fields, replace
from typing import ClassVar

import torch
from torch import Tensor

from sigmazero.attacks import _sites as sites
from sigmazero.attacks import _slopes as slopes
from sigmazero.attacks import _surrogate as surrogates
from sigmazero.attacks import _swap
from sigmazero.attacks._probe import Probe, probes
from sigmazero.attacks._probe import State as Probed
from sigmazero.attacks._slopes import Slopes
from sigmazero.attacks._surrogate import Surrogate
from sigmazero.attacks._swap import CHECKS, Judged, SwapSearch
from sigmazero.attacks._transfer import HALVINGS, WAYS, Transfer
from sigmazero.attacks._transfer import State as Transferred
from sigmazero.core import noise, ops
from sigmazero.core.attack import Attack
from sigmazero.core.model import Ability
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count, NamedModel, Share, Whole
from sigmazero.core.problem import Problem

MANY = 16  # with so many queries for each tile they are asked about in spite of a surrogate


@dataclass
class State(_swap.State):
    """Swap search's, with what is known of the slopes, and the margin of the current point."""

    known: Slopes
    now: Tensor


@dataclass(frozen=True, kw_only=True)
class QuerySearch(SwapSearch):
    """Swap search by slopes that it learns."""

    needs: ClassVar[Ability] = "scores"
    takes: ClassVar[frozenset[str]] = frozenset()

    @property
    def asks(self) -> int:
        """Queries of a step."""
        return self.proposals

    def follow(self, oracle: Oracle, before: Probed | Transferred) -> State:  # type: ignore[override]
        """Begin at the best point known, with what the first phase learnt."""
        known = before.known
        first = self._begin(oracle, known.g, torch.full_like(before.m, sites.USUAL * self.choices))
        mine = {f.name: getattr(first, f.name) for f in fields(first)}
        oracle.retire(first.done)
        return State(**mine, known=known, now=torch.full_like(before.m, torch.inf))

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:  # type: ignore[override]
        """Make the proposals one after the other; each teaches something about the slopes."""
        d, k = oracle.domain, self.proposals
        heat, _, many = oracle.row(self.rates, i)
        u = noise.drawn(s.luck, i, d.sites + 2 * k + 2, d.x.dtype)
        wave, luck, fate, size, turn = torch.split(u, [d.sites, k, k, 1, 1], 1)
        s = replace(s, g=s.known.g)
        ends = sites.ends(d, s.g)
        draws = self._draw(s, ends, sites.either(oracle, i), wave, fate, oracle)
        slack = 1 - heat * s.stuck[:, None] * torch.log1p(-luck)
        chosen = self._chosen(s, turn[:, 0])
        judged: list[Judged] = []
        for j in range(k):
            one, allowed, last = self._exchange(i, j, draws, s, oracle), s.m * slack[:, j], j == k - 1
            if last:
                n = torch.where(oracle.incumbents.best_l0 <= d.sites, sites.fewer(oracle, size[:, 0]), many.long())
                choice = sites.whole_choice(d, ends, n, wave, self.jitter).view_as(d.x)
                one = one._replace(point=torch.where(ops.per_row(chosen, d.x), choice, one.point))
                allowed = torch.where(chosen, torch.where(s.m.isinf(), -torch.inf, s.m), allowed)
            one = one._replace(point=d.snap(one.point))
            now = oracle.goal.margin(oracle.logits(one.point))
            # Equal gains may make a choice too large, and so may what joined in to keep a rule.
            m = now.masked_fill(oracle.worth(one.point) >= one.best, torch.inf) if last or d.tied else now
            z = d.by_site(one.point - s.a)
            known = slopes.learn(s.known, d, z, now - s.now)
            moved, draws, verdict = self._judge(one, m, allowed, s, draws, oracle)
            assert isinstance(moved, State)
            s = replace(moved, known=known, now=torch.where(verdict.kept, now, s.now))
            judged.append(verdict)
        wiser = self._learnt(s, draws, judged, chosen, oracle)
        assert isinstance(wiser, State)
        return wiser


@dataclass(frozen=True, kw_only=True)
class QuerySwap(QuerySearch):
    """Swap search without gradients; parameters that are not listed here are those of swap search.

    steps      queries of the search, all of them forward passes, where `queries` does not limit them
    queries    the most a sample may ask, clean check and verification included; None for `steps` and these checks
    share      part of the queries for a look at all sites, in tiles
    openings   whole choices after that
    surrogate  a network that resembles the model, with gradients; in plans and commands its name
    """

    name: str = "query-swap"
    steps: Count = 2000
    share: Share = 0.05
    openings: Whole = 20
    surrogate: Surrogate | None = None

    paper: ClassVar[str] = "docs/blackbox.md"
    version: ClassVar[int] = 2

    def check(self, problem: Problem) -> None:
        """Refuse a surrogate that cannot be asked, or that would leave no query."""
        super().check(problem)
        surrogates.check(self.name, self.surrogate)
        if self.surrogate is not None and self.steps < 2:
            raise ValueError(f"{self.name}: steps={self.steps} are too few with a surrogate; pass steps=2 or more")

    def phases(self, problem: Problem | None = None) -> tuple[Attack, ...]:
        """A look at all sites, which also gets the queries that do not fill a step of the search; then the search."""
        assert not isinstance(self.surrogate, NamedModel)  # as checked
        checks = CHECKS * (1 if problem is None else problem.checks)
        queries = self.steps if self.queries is None else self.queries - checks
        most = max(16, int(self.share * queries))
        tiles = (most + 1 if problem is None else probes(problem.domain, most)) - 1
        look = 1 + tiles + self.openings
        if self.surrogate is not None:
            tiles = tiles if MANY * tiles <= queries else 0
            look = 1 + WAYS + HALVINGS + tiles
        searches = max(0, queries - look) // self.proposals
        steps = queries - searches * self.proposals
        first: Attack = Probe(steps=steps, most=most, jitter=self.jitter, queries=self.queries)
        if self.surrogate is not None:
            first = Transfer(
                steps=steps - 1, tiles=tiles, jitter=self.jitter, queries=self.queries, surrogate=self.surrogate
            )
        if searches == 0:
            return (first,)
        mine = {f.name: getattr(self, f.name) for f in fields(QuerySearch) if f.name != "name"}
        return first, QuerySearch(**mine | {"steps": searches})
