"""Greedy choices by scores, for inputs that are rows of features: the first phase of query swap there.

Single changes come first: every site at one value, then at others, as far as the share of queries reaches. From the
best of them a climb adds one change after the other. Before each it asks about the few that promise most and about
some at random, until none that is left promises more than the best of those. At an example it goes back: some of the
changes are undone, and the climb begins again from there, to end with fewer. In a space a climb may end where no change
does anything (far from its data the margin of a kernel machine is flat). So where the margin no longer falls, it goes
back from the point of lowest margin, and looks at twice as many changes before each from then on. Without an example
the search begins at that point.

    M    single changes      K    points of a step      gain  by how much a change made the margin fall when last asked
    a    current point       m    its margin            fresh which gains were asked at this point
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from sigmazero.core import noise, ops
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Domain
from sigmazero.core.model import Ability
from sigmazero.core.oracle import Oracle

WIDTH = 6  # points of a step
RANDOM = 2  # of them drawn at random
MAX_VALUES = 17  # of a number: with more, single changes leave too few queries to the climb
ROUNDS = 2  # steps before a change is added, at most
PATIENCE = 24  # steps without an example after which a climb goes back, unless the margin fell
JITTER = 0.3  # how much a gain is varied after the first climb: others are tried


@dataclass
class State:
    """One row per sample; site, gain, fresh, possible are (rows, M), value is (rows, features of a site, M).

    cursor  how many single changes were asked about      rounds  steps at this point
    clean   margin of the clean input                     best    what the best example cost a step ago
    lowest  the lowest margin of a climb, at `nearest`    idle    steps since then
    vain    how often a climb went back without an example
    """

    site: Tensor
    value: Tensor
    possible: Tensor
    gain: Tensor
    fresh: Tensor
    cursor: Tensor
    rounds: Tensor
    a: Tensor
    m: Tensor
    clean: Tensor
    best: Tensor
    nearest: Tensor
    lowest: Tensor
    idle: Tensor
    vain: Tensor
    luck: Tensor
    done: Tensor

    def best_values(self, d: Domain) -> tuple[Tensor, Tensor]:
        """Return for each site the value (N, C, S) whose change did most when last asked, and what it did (N, S)."""
        gain = self.gain.masked_fill(~self.possible, -torch.inf)
        most = torch.full_like(gain[:, :1], -torch.inf).expand(-1, d.sites).scatter_reduce(1, self.site, gain, "amax")
        first = gain == most.gather(1, self.site)
        value, depth = d.by_site(d.x), self.value.shape[1]
        where = torch.where(first, self.site, d.sites)[:, None].expand(-1, depth, -1)
        wide = torch.cat([value, value[:, :, :1]], 2).scatter(2, where, self.value)
        return wide[..., :-1], torch.where(most.isfinite(), most, 0.0)


@dataclass(frozen=True, kw_only=True)
class Climb(Attack):
    """Single changes, the first `singles` of at most `changes`, then climbs with all of them.

    After `most` queries a sample waits for the search.
    """

    name: str = "query-swap"
    steps: int
    most: int
    singles: int
    changes: int
    queries: int | None

    paper: ClassVar[str] = "docs/blackbox.md"
    needs: ClassVar[Ability] = "scores"
    unroll: ClassVar[int] = 1

    @property
    def step_cost(self) -> int:
        """Return the queries of a step; the current point is one, unless its answer is remembered."""
        return WIDTH + 1

    def init(self, oracle: Oracle) -> State:
        """List the single changes, ask nothing."""
        p, d = oracle.problem, oracle.domain
        site, value, depth = listed(d, self.changes)
        where = site.expand_as(value)
        x, lower, upper = (d.by_site(v).gather(2, where) for v in (d.x, d.lower, d.upper))
        possible = (value != x).any(1) & ((value >= lower) & (value <= upper)).all(1)
        if d.needs_exploring:
            order = _by_turn(where[:, 0], depth.expand_as(possible), possible, d)
            where, value = (v.gather(2, order[:, None].expand_as(v)) for v in (where, value))
            possible = possible.gather(1, order)
        one = d.x.new_ones(len(p))
        return State(
            site=where[:, 0].clone(),
            value=value,
            possible=possible,
            gain=torch.zeros_like(value[:, 0]),
            fresh=torch.zeros_like(possible),
            cursor=torch.zeros_like(p.y),
            rounds=torch.zeros_like(p.y),
            a=d.x,
            m=torch.inf * one,
            clean=torch.inf * one,
            best=oracle.incumbents.best_cost.to(d.x.dtype),
            nearest=d.x,
            lowest=torch.inf * one,
            idle=torch.zeros_like(p.y),
            vain=torch.zeros_like(p.y),
            luck=noise.source(p.seed, p.ids, stream=2),
            done=~possible.any(1),
        )

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Ask about the next single changes, or about what may be added to the current point."""
        d, n = oracle.domain, s.site.shape[1]
        u = noise.drawn(s.luck, i, 2 * n + d.sites + 2, d.x.dtype)
        wave, race, fate, size = torch.split(u, [n, n, d.sites, 2], 1)
        alone = s.cursor < min(n, self.singles)
        open_ = self._open(s, oracle)
        places = (s.cursor[:, None] + torch.arange(WIDTH, device=i.device)).clamp(max=n - 1)
        chosen = torch.where(alone[:, None], places, self._candidates(s, open_, wave, race, d))
        use = torch.where(alone[:, None], s.possible, open_).gather(1, chosen)
        use &= (oracle.incumbents.forwards < self.most)[:, None]
        points = torch.cat([s.a[:, None], self._moved(s, chosen, use, d)], 1)  # the first one says what a gain is from
        margins = oracle.goal.margin(oracle.logits(points, copies=WIDTH + 1))
        m, rest = margins[:, 0], margins[:, 1:]
        gain = torch.where(use & rest.isfinite(), m[:, None] - rest, -torch.inf)
        known = torch.full_like(s.gain, -torch.inf).scatter_reduce(1, chosen, gain, "amax")
        queried = torch.zeros_like(s.fresh, dtype=d.x.dtype).scatter_reduce(1, chosen, use.to(d.x.dtype), "amax") > 0
        s = replace(
            s,
            m=m,
            clean=torch.where(i == 0, m, s.clean),
            gain=torch.where(queried, known, s.gain),
            fresh=s.fresh | queried,
            cursor=s.cursor + WIDTH * alone,
            rounds=torch.where(alone, 0, s.rounds + 1),
        )
        return self._decide(s, open_, alone, fate, size, oracle)

    def _open(self, s: State, oracle: Oracle) -> Tensor:
        """Return which changes may be added: of sites that are as in the clean input, below the best example."""
        d, changed = oracle.domain, oracle.domain.changed(s.a).flatten(1)
        fits = (d.cost(s.a)[:, None] + d.costs[s.site]) < oracle.incumbents.best_cost[:, None]
        if oracle.problem.budget is not None:
            fits &= (changed.sum(1) < oracle.problem.budget)[:, None]
        return s.possible & ~changed.gather(1, s.site) & fits

    def _candidates(self, s: State, open_: Tensor, wave: Tensor, race: Tensor, d: Domain) -> Tensor:
        """Return those of the largest gain for their cost that are not fresh, and some at random."""
        found = open_ & ~s.fresh
        score = s.gain * (1 + JITTER * (2 * wave - 1)) / d.costs[s.site]
        top = score.masked_fill(~found, -torch.inf).topk(min(WIDTH - RANDOM, score.shape[1]), 1).indices
        luck = race.scatter(1, top, -1.0).masked_fill(~found, -1.0)
        both = torch.cat([top, luck.topk(min(RANDOM, score.shape[1]), 1).indices], 1)
        return both[:, torch.arange(WIDTH, device=both.device).clamp(max=both.shape[1] - 1)]

    def _moved(self, s: State, chosen: Tensor, use: Tensor, d: Domain) -> Tensor:
        """Return the current point with each of some changes (N, K), where it is to be used: (N, K, ...)."""
        a = d.by_site(s.a)[:, None].expand(-1, chosen.shape[1], -1, -1)
        where = s.site.gather(1, chosen)[..., None, None].expand(-1, -1, a.shape[2], 1)
        value = s.value.gather(2, chosen[:, None].expand(-1, a.shape[2], -1)).transpose(1, 2)[..., None]
        point = a.scatter(3, where, torch.where(use[..., None, None], value, a.gather(3, where)))
        return d.snap(point.reshape(*chosen.shape, *d.x.shape[1:]))

    def _decide(self, s: State, open_: Tensor, alone: Tensor, fate: Tensor, size: Tensor, oracle: Oracle) -> State:
        """Add the best change, look at more of them, or go back: from an example, or where nothing helps."""
        d, incumbents = oracle.domain, oracle.incumbents
        score = s.gain / d.costs[s.site]
        mine = score.masked_fill(~(open_ & s.fresh), -torch.inf)
        promise = score.masked_fill(~open_ | s.fresh, -torch.inf).amax(1)
        top, where = mine.max(1, keepdim=True)
        some, found = incumbents.best_l0 <= d.sites, incumbents.best_cost.to(s.best) < s.best
        ready = ~alone | (s.cursor >= min(s.site.shape[1], self.singles))
        fell = ready & (s.m < s.lowest)
        nearest, idle = torch.where(ops.per_row(fell, s.a), s.a, s.nearest), torch.where(fell, 0, s.idle)
        lost = ready & ~some & (idle >= PATIENCE) & d.needs_exploring
        enough = (top[:, 0] >= promise) | (s.rounds >= ROUNDS * 2**s.vain)
        add = ready & top[:, 0].isfinite() & enough & ~found & ~lost
        stuck = ready & ~add & ~(open_ & ~s.fresh).any(1)
        back, new = (ready & found) | stuck | lost, add | (ready & found) | stuck | lost
        begin = torch.where(ops.per_row(lost, s.a), nearest, s.a)
        undone = self._undone(torch.where(ops.per_row(some, s.a), incumbents.best, begin), fate, size, d)
        next_ = torch.where(ops.per_row(add, s.a), self._moved(s, where, add[:, None], d)[:, 0], s.a)
        return replace(
            s,
            a=torch.where(ops.per_row(back, next_), undone, next_),
            fresh=s.fresh & ~new[:, None],
            rounds=torch.where(new, 0, s.rounds),
            best=torch.where(ready, incumbents.best_cost.to(s.best), s.best),
            nearest=nearest,
            lowest=torch.where(fell, s.m, s.lowest),
            idle=torch.where(back, 0, idle + ready),
            vain=s.vain + lost,
            done=s.done | (incumbents.best_cost <= d.least(1)),
        )

    def _undone(self, a: Tensor, fate: Tensor, size: Tensor, d: Domain) -> Tensor:
        """Undo two changes of a point, or more of a large one, at random."""
        changed = d.changed(a).flatten(1)
        count = changed.sum(1)
        n = 2 + (size[:, 0] * (count / 2 - 1).clamp(min=0)).long()
        place = ops.ranks(fate.masked_fill(~changed, 2.0))
        gone = changed & (place < n[:, None])
        return d.snap(torch.where(gone[:, None], d.by_site(d.x), d.by_site(a)).view_as(a))


def listed(d: Domain, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return at most `most` single changes: one of every site, then a second one, and so on.

    They are sites (M,), values (N, C, M), and the turn of each (M,). A category has every word, a number at
    most MAX_VALUES values.
    """
    every = d.moves()
    alone = (every.partner == 0).nonzero().squeeze(1)
    site = every.site[alone]
    first = torch.searchsorted(site, site)  # moves come site by site
    turn, many = torch.arange(len(site), device=site.device) - first, torch.bincount(site, minlength=d.sites)[site]
    # The last value, the first, the middle one, then what lies between.
    share = turn.double() / (many - 1).clamp(min=1)
    depth = torch.where(share == 1, 0.0, torch.where(share == 0, 1.0, 2.0 + _depth(turn, many)))
    few = depth < MAX_VALUES.bit_length() + 1
    few = few if d.categories is None else few | d.categories[site]
    order = (depth * d.sites + site).masked_fill(~few, torch.inf).argsort(stable=True)[: min(most, int(few.sum()))]
    return site[order], every.value[:, :, alone[order]], depth[order]


def _by_turn(site: Tensor, depth: Tensor, possible: Tensor, d: Domain) -> Tensor:
    """Return the order (N, M) of changes for each row: the first value that a site can take comes in the first turn.

    A flag that is set has its only change in the second turn otherwise, which few queries do not reach.
    """
    own = depth.masked_fill(~possible, torch.inf)
    first = torch.full_like(own[:, :1], torch.inf).expand(-1, d.sites).scatter_reduce(1, site, own, "amin")
    first = first.gather(1, site)
    first = torch.where(first.isfinite(), first, 0.0)
    turn = torch.where(depth == first, 0.0, torch.where(depth == 0, first, depth))  # these two change places
    return (turn * d.sites + site).argsort(dim=1, stable=True)


def _depth(turn: Tensor, many: Tensor) -> Tensor:
    """Return after how many halvings of the way from the first to the last a value comes."""
    found, low, high = torch.zeros_like(turn), torch.zeros_like(turn), many - 1
    left = torch.ones_like(turn, dtype=torch.bool)
    for _ in range(12):
        middle = torch.div(low + high, 2, rounding_mode="floor")
        left = left & (turn != middle)
        found = found + left
        low, high = torch.where(turn > middle, middle, low), torch.where(turn < middle, middle, high)
    return found
