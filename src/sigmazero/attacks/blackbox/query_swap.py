r"""Query swap: σ-swap's search on a model that gives scores and no gradients (docs/blackbox.md).

The search exchanges changed sites as swap search does (see swap.search), guided by slopes that it learns from its own
queries (see slopes) instead of the model's gradient. It begins with a coarse look at all sites (see Probe). Where a
network is at hand that resembles the model, pass it as `surrogate`: the search then begins with what fools that network
(see transfer), and goes on as without it. Queries of that network are not counted. Where a budget is given,
images are searched within it from the beginning (see aim).

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> result = sz.get("query-swap", steps=60).run(model, torch.full((1, 4), 0.5), torch.tensor([0]))
>>> int(result.l0[0]), int(result.backwards[0])
(2, 0)
"""

from dataclasses import dataclass, fields, replace
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from sigmazero.attacks.blackbox import slopes
from sigmazero.attacks.blackbox import transfer as surrogates
from sigmazero.attacks.blackbox.aim import Aim
from sigmazero.attacks.blackbox.aim import State as AimState
from sigmazero.attacks.blackbox.climb import WIDTH, Climb
from sigmazero.attacks.blackbox.climb import State as Climbed
from sigmazero.attacks.blackbox.slopes import Slopes
from sigmazero.attacks.blackbox.transfer import HALVINGS, WAYS, Surrogate, Transfer
from sigmazero.attacks.blackbox.transfer import State as Transferred
from sigmazero.attacks.swap import search, sites
from sigmazero.attacks.swap.search import CHECKS, Draws, Judged, LongSearch, Proposal
from sigmazero.attacks.swap.sites import Ends
from sigmazero.core import noise, ops
from sigmazero.core.answers import STEPS_FACTOR
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Domain
from sigmazero.core.model import Ability
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count, NamedModel, Share, Whole
from sigmazero.core.problem import Problem

SINGLES_SHARE = 0.5  # part of the queries that single changes of rows of features may take
CLIMB_SHARE = 0.6  # part of them for single changes and climbs
TILES_SHARE = 0.1  # part of the queries that tiles take within a budget
LEAST_TILES = 100  # of the first look, unless these were more than a third of the queries
FIRST_SITES = 8  # sites of the first whole choice
QUERIES_PER_TILE = 16  # with more queries for each tile they are asked about in spite of a surrogate


@dataclass
class ProbeState:
    """One row per sample.

    m      margin of the clean input                    low    sites of the largest choice that failed
    """

    known: Slopes
    m: Tensor
    low: Tensor
    luck: Tensor


@dataclass(frozen=True, kw_only=True)
class Probe(Attack):
    """The clean input, then at most `most` tiles, then whole choices, each of them one query."""

    name: str = "query-swap"
    steps: int
    most: int
    jitter: float
    queries: int | None

    paper: ClassVar[str] = "docs/blackbox.md"
    needs: ClassVar[Ability] = "scores"
    unroll: ClassVar[int] = 1

    def init(self, oracle: Oracle) -> ProbeState:
        """Ask nothing yet."""
        p, d = oracle.problem, oracle.domain
        return ProbeState(
            known=slopes.begin(d),
            m=d.x.new_full((len(p),), torch.inf),
            low=d.x.new_full((len(p),), FIRST_SITES / 2),
            luck=noise.source(p.seed, p.ids),
        )

    def step(self, i: Tensor, s: ProbeState, oracle: Oracle) -> ProbeState:
        """Ask about the clean input, a tile, or a whole choice."""
        d = oracle.domain
        x, tile = d.by_site(d.x), slopes.tiles(d, self.most)
        probing = i <= slopes.grid(d, self.most)[1]
        mine = tile == i - 1
        best = oracle.incumbents.best_cost
        found = oracle.incumbents.best_l0 <= d.sites
        low, size = surrogates.next_size(s.low, best.to(s.low), found)
        ends = sites.ends(d, s.known.g)
        wave = noise.drawn(s.luck, i, d.sites, d.x.dtype)
        choice = sites.whole_choice(d, ends, size, wave, self.jitter)
        point = torch.where(probing, torch.where(mine, sites.blind(oracle, ends, i), x), choice)
        point = d.snap(point.view_as(d.x))
        m = oracle.goal.margin(oracle.logits(point))
        z = (point - d.x).view_as(x) * probing
        failed = ~probing & (oracle.incumbents.best_cost >= best)
        return replace(
            s,
            known=slopes.learn_tile(s.known, z, m - s.m, mine),
            m=torch.where(i == 0, m, s.m),
            low=torch.where(failed, size, torch.where(probing, s.low, low)),
        )


@dataclass
class SearchState(search.State):
    """Swap search's, with what is known of the slopes, and the margin of the current point.

    `value` is where each site goes by what single changes did, where that was `useful` (rows, sites).
    """

    known: Slopes
    now: Tensor
    value: Tensor
    useful: Tensor


@dataclass(frozen=True, kw_only=True)
class QuerySearch(LongSearch):
    """Swap search by slopes that it learns."""

    needs: ClassVar[Ability] = "scores"
    takes: ClassVar[frozenset[str]] = frozenset()

    @property
    def step_cost(self) -> int:
        """Return the queries of a step."""
        return self.proposals

    def follow(self, oracle: Oracle, before: ProbeState | Transferred | Climbed) -> SearchState:  # type: ignore[override]
        """Begin at the best point known, with what the first phase learnt.

        In a space where a climb found no example, the best point is that of lowest margin.
        """
        d = oracle.domain
        if isinstance(before, Climbed):
            value, gain = before.best_values(d)
            z = value - d.by_site(d.x)
            g = -z * (gain.clamp(min=0) / (z * z).sum(1).clamp(min=1e-30))[:, None]
            known = replace(slopes.begin(d), g=g)
        else:
            known, value, gain = before.known, d.by_site(d.x), torch.zeros_like(before.known.g[:, 0])
        first = self._begin(oracle, known.g)
        oracle.retire(first.done)
        now = torch.full_like(first.m, torch.inf)
        if isinstance(before, Climbed) and d.needs_exploring:
            lost = ~self._found(oracle)
            now = torch.where(lost, before.lowest, now)
            a = torch.where(ops.per_row(lost, first.a), before.nearest, first.a)
            first = replace(first, a=a, count=d.l0(a), m=now)
        return SearchState(**vars(first), known=known, now=now, value=value, useful=gain > 0)

    def _ends(self, s: SearchState, d: Domain) -> Ends:  # type: ignore[override]
        """Return where each site best goes and what that promises, by the slopes; or by what single changes did."""
        end = torch.where(s.useful[:, None], s.value, d.best_values(s.g))
        gain = sites.total(s.g * (d.by_site(d.x) - end)).clamp(min=0) / d.costs
        return Ends(end, gain / gain.amax(1, keepdim=True).clamp(min=1e-30))

    def _blind(self, i: Tensor, ends: Ends, oracle: Oracle) -> Tensor:
        """Return values that trust no slope."""
        return sites.either(oracle, i)

    def _attempt(  # type: ignore[override]
        self, one: Proposal, allowed: Tensor, last: bool, momentum: Tensor, s: SearchState, draws: Draws, oracle: Oracle
    ) -> tuple[SearchState, Draws, Judged]:
        """Ask about a proposal and judge it; each teaches something about the slopes."""
        d = oracle.domain
        one = one._replace(point=d.snap(one.point))
        now = oracle.goal.margin(oracle.logits(one.point))
        known = slopes.learn(s.known, d, d.by_site(one.point - s.a), now - s.now)
        moved, draws, verdict = self._judge(one, self._fitting(now, one, last, oracle), allowed, s, draws, oracle)
        assert isinstance(moved, SearchState)
        now = torch.where(verdict.taken, now, s.now)
        return replace(moved, known=known, g=known.g, now=now), draws, verdict


@dataclass(frozen=True, kw_only=True)
class AimedSearch(QuerySearch):
    """The same with as many changes as the budget allows, whether they fool the model yet or not."""

    def follow(self, oracle: Oracle, before: AimState) -> SearchState:  # type: ignore[override]
        """Begin at the best point of the random search."""
        d, known = oracle.domain, before.known
        first = replace(self._begin(oracle, known.g), a=before.a, count=d.l0(before.a), m=before.loss)
        nothing = torch.zeros_like(before.M)
        return SearchState(**vars(first), known=known, now=before.loss, value=d.by_site(d.x), useful=nothing)

    def _found(self, oracle: Oracle) -> Tensor:
        """Return true for every row: the budget is the size to stay below."""
        return torch.ones_like(oracle.incumbents.best_l0, dtype=torch.bool)

    def _best(self, oracle: Oracle) -> Tensor:
        """Return one more than the budget."""
        return oracle.incumbents.best_cost.clamp(max=(oracle.problem.budget or 0) + 1)


@dataclass(frozen=True, kw_only=True)
class QuerySwap(QuerySearch):
    """Run a swap search with the scores of a model alone. It learns from its own queries which sites matter, and may
    begin with what fools a network that resembles the model (`surrogate`).

    The limit `queries` includes the clean check and the verification. Parameters that are not listed here are those of
    swap search.
    """

    name: str = "query-swap"
    steps: Annotated[Count, "queries of the search"] = 2000
    share: Annotated[
        Share,
        "part of the queries for a first look at all sites, in tiles; it has at least 100",
    ] = 0.05
    openings: Annotated[Whole, "whole choices that are tried after the first look"] = 20
    surrogate: Annotated[Surrogate | None, "a network that resembles the model; in a command its name"] = None

    asks: ClassVar[str] = "1 query a step"
    paper: ClassVar[str] = "docs/blackbox.md"
    version: ClassVar[int] = 8
    remembers: ClassVar[bool] = True

    def check(self, problem: Problem) -> None:
        """Refuse a surrogate that cannot be asked, or that would leave no query."""
        super().check(problem)
        surrogates.check(self.name, self.surrogate)
        if self.surrogate is not None and self.steps < 2:
            raise ValueError(f"{self.name}: steps={self.steps} are too few with a surrogate; pass steps=2 or more")

    def phases(self, problem: Problem | None = None) -> tuple[Attack, ...]:
        """Return a first look, which also gets the queries that do not fill a step of the search; then the search.

        Of rows of features the first look is a climb, where every feature can be asked about alone. Within a budget
        both phases stay within it (see `aim`).
        """
        assert not isinstance(self.surrogate, NamedModel)  # as checked
        checks = CHECKS if problem is None else problem.overhead
        queries = self.steps if self.queries is None else self.queries - checks
        limit = queries + checks
        singles = int(SINGLES_SHARE * queries)
        first: Attack
        if problem is not None and self._aims(problem):
            searches = queries // 2 // self.proposals  # half of the queries for each
            most = max(16, int(TILES_SHARE * queries))
            first = Aim(steps=queries - searches * self.proposals, most=most, jitter=self.jitter, queries=limit)
            return self._with(first, AimedSearch, STEPS_FACTOR * searches, limit)
        if self.surrogate is None and problem is not None and problem.x.ndim == 2 and problem.sites <= singles:
            first = Climb(
                steps=STEPS_FACTOR * int(CLIMB_SHARE * queries) // WIDTH,
                most=int(CLIMB_SHARE * queries),
                singles=singles,
                changes=2 * queries,
                queries=limit,
            )
            searches = STEPS_FACTOR * int((1 - CLIMB_SHARE) * queries) // self.proposals
        else:
            most = max(16, int(self.share * queries), min(LEAST_TILES, queries // 3))
            tiles = (most + 1 if problem is None else slopes.probes(problem.domain, most)) - 1
            look = 1 + tiles + self.openings
            if self.surrogate is not None:
                tiles = tiles if QUERIES_PER_TILE * tiles <= queries else 0
                look = 1 + WAYS + HALVINGS + tiles
            searches = max(0, queries - look) // self.proposals
            steps = queries - searches * self.proposals
            first = Probe(steps=steps, most=most, jitter=self.jitter, queries=limit)
            if self.surrogate is not None:
                first = Transfer(
                    steps=steps - 1, tiles=tiles, jitter=self.jitter, queries=limit, surrogate=self.surrogate
                )
            searches *= STEPS_FACTOR
        return self._with(first, QuerySearch, searches, limit)

    def _aims(self, problem: Problem) -> bool:
        """Return whether the search stays within a budget: of images, where a change brings no other with it."""
        d = problem.domain
        aims = problem.budget is not None and self.surrogate is None and problem.x.ndim > 2
        return aims and not d.weighted and not d.tied

    def _with(self, first: Attack, search: type[QuerySearch], steps: int, limit: int) -> tuple[Attack, ...]:
        """Return the first phase, and the search if it has steps."""
        mine = {f.name: getattr(self, f.name) for f in fields(search) if f.name != "name"}
        return (first, search(**mine | {"steps": steps, "queries": limit})) if steps else (first,)
