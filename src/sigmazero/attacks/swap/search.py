r"""Swap search: makes an adversarial example sparser by exchanging the sites it changes, mostly without gradients.

σ-zero and similar attacks rarely leave a change that could simply be undone. But they do not always choose the best
sites to change. So the search holds a point with one change fewer than the best example known. It exchanges one changed
site for another as long as that does not hurt. A success lowers the best number by one, and the search goes on with one
change fewer than that. A new site always goes to an end of the box. A step makes a few proposals; the last one also
asks for the gradient. docs/evidence/stronger.md says what each part is worth.

    a    current point, one change fewer than the best            m      its margin; ∞ before it is known
    g    running mean of the margin's gradient                    gain   what a site's better end promises by it
    w    how likely a site is proposed                            worn   logarithm of the factor on w of tried sites

A new site is drawn from one of four places: near the changed sites, by gain or blindly; or anywhere, by gain² or
blindly. Where gradients mislead, only blind draws find a good site. So each sample prefers the places that have helped
it so far. A site that was proposed in vain becomes less likely. The site to give up is drawn too; one that contributes
little is more likely. A proposal is kept if its margin is no worse. After a step that improved nothing, a proposal that
is a little worse may be kept too. The chance of this falls to zero (annealing). The last proposal of a step may instead
be a whole new choice: the sites of largest gain, with some noise on the gains. That is quick where gradients can be
trusted. Like a place, it is preferred where it has helped.

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> x, y = torch.full((1, 4), 0.5), torch.tensor([0])
>>> sparser = sz.refine(model, x, y, torch.zeros(1, 4), queries=100)
>>> int((sparser != x).sum())
2
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Annotated, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from sigmazero.attacks.swap import sites
from sigmazero.attacks.swap.opening import Rung
from sigmazero.attacks.swap.opening import State as Opened
from sigmazero.attacks.swap.sites import Ends, Sources
from sigmazero.core import noise, ops
from sigmazero.core.answers import STEPS_FACTOR
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Domain
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count, Momentum, NotNegative, Positive, Range, Whole
from sigmazero.core.problem import Problem

CHECKS = 1 + 2  # of the clean input and, at most, of records
LEAST = CHECKS + 2  # queries of the checks, of the start and its gradient
PLACES = 4
HALF = math.log(0.5)  # powers of 2 as exp: exp2 and pow round differently at the end of a vector on a CPU
CHOICE = PLACES  # index of the source that follows the places: whole new choices
PATIENCE = 1000  # proposals that annealing needs to pay off; a shorter search begins colder
FORGETS = 10  # steps in which the momentum halves: old gradients help a short search and mislead a long one


@dataclass
class State:
    """One row per sample; g is (rows, features of a site, sites), worn (rows, sites), wins and tries (rows, 5).

    `stuck` says that the step before improved nothing: only then may a worse point be kept.
    `luck` is the source of random numbers.
    """

    a: Tensor
    count: Tensor
    g: Tensor
    m: Tensor
    stuck: Tensor
    worn: Tensor
    wins: Tensor
    tries: Tensor
    luck: Tensor
    done: Tensor


class Draws(NamedTuple):
    """The sites drawn for a step, one column per proposal: a new one to change and an old one to put back.

    value, clean  values of the new site, changed and in the clean input: (rows, features of a site, proposals)
    credit        which place proposed the new site, as weights that sum to 1: (rows, places, proposals)
    """

    new: Tensor
    old: Tensor
    value: Tensor
    clean: Tensor
    credit: Tensor


class Proposal(NamedTuple):
    """The j-th point of a step, the fewest changes known before it, and in which rows it exchanges two sites."""

    j: int
    point: Tensor
    best: Tensor
    swap: Tensor


class Judged(NamedTuple):
    """A proposal after its query: the fewest changes and the margin before it, its margin, and whether it is taken."""

    best: Tensor
    before: Tensor
    m: Tensor
    swap: Tensor
    taken: Tensor


@dataclass(frozen=True, kw_only=True)
class SwapSearch(Attack):
    """Make an adversarial example sparser by exchanging the sites it changes. The search starts from points that are
    given, or from the best point known; `sz.refine` runs it.

    The limit `queries` includes the clean check and the verification.
    """

    name: str = "swap-search"
    steps: Count = 200
    proposals: Annotated[Count, "points per step; the last one asks for a gradient too where there is one"] = 5
    radius: Annotated[Whole, "how far “near” reaches, for inputs with positions"] = 1
    sharpness: Annotated[Whole, "power of the gain by which sites are drawn"] = 2
    choices: Annotated[NotNegative, "what a whole new choice saves at first, in exchanges; 0 for none"] = 5.0
    trust: Annotated[Positive, "how many proposals the first expectation of a place is worth"] = 10.0
    heat: Annotated[NotNegative, "share of its margin that a stuck point may lose at the start of a long search"] = 0.2
    momentum: Annotated[Momentum, "weight of the past in the running gradient"] = 0.7
    jitter: Annotated[NotNegative, "largest relative noise on a gain in a whole new choice"] = 0.25
    queries: Annotated[Annotated[int, Range(least=LEAST)] | None, "most that a sample may ask, both ways"] = None

    asks: ClassVar[str] = "`proposals` + 1 queries a step"
    paper: ClassVar[str] = "docs/evidence/stronger.md"
    version: ClassVar[int] = 4
    unroll: ClassVar[int] = 1
    finite_box: ClassVar[bool] = True
    takes: ClassVar[frozenset[str]] = frozenset({"start"})

    @property
    def step_cost(self) -> int:
        """Return the queries of a step."""
        return self.proposals + 1

    def check(self, problem: Problem) -> None:
        """Refuse a limit that the checks alone would use up."""
        super().check(problem)
        least = LEAST - CHECKS + problem.overhead
        if self.limit is not None and self.limit < least:
            raise ValueError(
                f"queries={self.limit} are too few: {problem.overhead} may be spent on checking the clean input and "
                f"what is found, in {problem.clean} number formats; pass queries={least} or more"
            )

    @cached_property
    def rates(self) -> Tensor:
        """Return for each step heat, momentum, and the sites of a whole choice where no example is known."""
        heat = self.heat * min(1.0, self.steps * self.proposals / PATIENCE)
        numbers = [
            (heat * (1 - i / self.steps), self.momentum * 2 ** (-i / FORGETS), 2.0 ** min(i + 3, 30))
            for i in range(self.steps)
        ]
        return torch.tensor(numbers, dtype=torch.float64, device="cpu")

    def init(self, oracle: Oracle) -> State:
        """Ask about the starting point and its gradient."""
        d, start, broken = oracle.domain, oracle.problem.start, oracle.incumbents.broken
        begin = oracle.incumbents.best if start is None else d.clip(d.from_user(start))
        answer = oracle.value_and_grad(begin, oracle.goal.margin)
        oracle.incumbents.broken = broken  # a start without finite logits is none: the search begins at the clean input
        gradient = torch.where(answer.grad.isfinite(), answer.grad, 0.0)
        state = self._begin(oracle, sites.scaled(d, gradient))
        oracle.retire(state.done)
        return state

    def follow(self, oracle: Oracle, before: Opened | Rung) -> State:
        """Begin at the best point known, with what the first phase learnt about the gradient and whole choices."""
        learnt = (before.wins / before.tries)[:, 0] if isinstance(before, Opened) else None
        state = self._begin(oracle, before.g, learnt)
        oracle.retire(state.done)
        return state

    def _begin(self, oracle: Oracle, g: Tensor, choice: Tensor | None = None) -> State:
        """Return the first state; `choice` is how many changes a whole new choice has saved, if that is known."""
        best = oracle.incumbents.best  # the clean input where the start does not reach the goal
        tries = g.new_full((len(g), PLACES + 1), self.trust)
        tries[:, CHOICE] /= 5  # a few failures are enough to do without whole choices
        usual = g.new_full((len(g),), sites.EXPECTED_SAVED)
        choice = usual * self.choices if choice is None else choice
        return State(
            a=best,
            count=oracle.domain.l0(best),
            g=g,
            m=torch.full_like(usual, torch.inf),
            stuck=torch.zeros_like(usual, dtype=torch.bool),
            worn=torch.zeros_like(g[:, 0]),
            wins=tries * torch.stack([usual] * PLACES + [choice], 1),
            tries=tries,
            luck=noise.source(oracle.problem.seed, oracle.problem.ids, stream=1),
            done=sites.finished(oracle),
        )

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Make the proposals one after the other; the last one may be a whole new choice."""
        d, k = oracle.domain, self.proposals
        heat, momentum, many = oracle.row(self.rates, i)
        u = noise.drawn(s.luck, i, d.sites + 2 * k + 2, d.x.dtype)
        wave, luck, fate, size, turn = torch.split(u, [d.sites, k, k, 1, 1], 1)
        ends = self._ends(s, d)
        draws = self._draw(s, ends, self._blind(i, ends, oracle), wave, fate, oracle)
        slack = 1 - heat * s.stuck[:, None] * torch.log1p(-luck)
        chosen = self._chosen(s, turn[:, 0])
        judged: list[Judged] = []
        for j in range(k):
            one, allowed, last = self._exchange(i, j, draws, s, oracle), s.m * slack[:, j], j == k - 1
            if last:
                n = torch.where(self._found(oracle), sites.fewer(d, self._best(oracle), size[:, 0]), many.long())
                choice = sites.whole_choice(d, ends, n, wave, self.jitter).view_as(d.x)
                one = one._replace(point=torch.where(ops.per_row(chosen, d.x), choice, one.point))
                # A choice must not be worse than the current point; where that has no margin yet, it must succeed.
                allowed = torch.where(chosen, torch.where(s.m.isinf(), -torch.inf, s.m), allowed)
            s, draws, verdict = self._attempt(one, allowed, last, momentum, s, draws, oracle)
            judged.append(verdict)
        return self._learnt(s, draws, judged, chosen, oracle)

    def _ends(self, s: State, d: Domain) -> Ends:
        """Return the best value of each site, and what it promises."""
        return sites.ends(d, s.g)

    def _blind(self, i: Tensor, ends: Ends, oracle: Oracle) -> Tensor:
        """Return values that do not depend on the gradient."""
        return sites.blind(oracle, ends, i)

    def _attempt(
        self, one: Proposal, allowed: Tensor, last: bool, momentum: Tensor, s: State, draws: Draws, oracle: Oracle
    ) -> tuple[State, Draws, Judged]:
        """Ask about a proposal, the last of a step with its gradient, and judge it."""
        if last:
            answer = oracle.value_and_grad(one.point, oracle.goal.margin)
            m, s = answer.value, replace(s, g=torch.lerp(sites.scaled(oracle.domain, answer.grad), s.g, momentum))
        else:
            m = oracle.goal.margin(oracle.logits(one.point))
        return self._judge(one, self._fitting(m, one, last, oracle), allowed, s, draws, oracle)

    def _fitting(self, m: Tensor, one: Proposal, last: bool, oracle: Oracle) -> Tensor:
        """Return the margin, or infinity where the point costs too much.

        It does where equal gains chose more sites, or where features joined in to keep a rule.
        """
        return m.masked_fill(oracle.worth(one.point) >= one.best, torch.inf) if last or oracle.domain.tied else m

    def _draw(self, s: State, ends: Ends, drawn: Tensor, wave: Tensor, fate: Tensor, oracle: Oracle) -> Draws:
        """Draw the sites of all proposals of a step; new ones from a mixture of the four places."""
        x, lower, upper = oracle.domain.box
        a = s.a.view_as(x)
        changed = (a != x).any(1)
        near, wide = neighbours(changed, s.a, self.radius)
        sharp = reduce(torch.mul, [ends.gain] * self.sharpness) if self.sharpness else torch.ones_like(wide)
        w = torch.stack([ends.gain * near, wide, sharp, torch.ones_like(wide)], 1)
        w = w * torch.exp(s.worn).masked_fill(changed | (lower == upper).all(1), 0)[:, None]
        w = w * ((s.wins / s.tries)[:, :PLACES, None] / w.sum(2, keepdim=True).clamp(min=1e-30))
        rise = sites.total(s.g * (x - a))  # of the margin if a site is put back, to first order
        ease = (rise / rise.amax(1, keepdim=True).clamp(min=1e-30)).clamp(min=1e-2).rsqrt()
        # Drawing without replacement as a race: arrival times are exponential with the weights as rates.
        time = -torch.log1p(-wave) / torch.where(changed, ease, w.sum(1))
        fast, new = _first(time.masked_fill(changed, torch.inf), self.proposals)
        _, old = _first(torch.where(changed, time, torch.inf), self.proposals)
        turns = torch.arange(self.proposals, device=wave.device)
        old = old.gather(1, turns % s.count.clamp(1, self.proposals)[:, None])
        left = fast.isfinite()
        new = torch.where(left, new, old)  # where no unchanged site is left
        known = self._found(oracle)[:, None]
        again = self._again(old, oracle)
        if again is not None:
            new, left = torch.where(again, old, new), left | again
        credit = w.gather(2, new[:, None].expand(-1, PLACES, -1))
        blind = fate * credit.sum(1) < credit[:, 1] + credit[:, 3]
        credit = credit * torch.stack([~blind, blind] * 2, 1)
        blind = blind if again is None else torch.where(again, fate < 0.5, blind)
        there = new[:, None].expand(-1, x.shape[1], -1)
        clean, end, far = (v.gather(2, there) for v in (x, ends.end, drawn))
        # Without an example a site that is changed already may need another value, if no other is left.
        last = torch.where(known[:, None], clean, far) if oracle.domain.needs_exploring else clean
        return Draws(
            new=new,
            # Where no example was found yet, no site is put back: the old site is the new one.
            old=torch.where(known, old, new),
            value=torch.where(left[:, None], torch.where(blind[:, None], far, end), last),
            clean=clean,
            credit=credit / credit.sum(1, keepdim=True).clamp(min=1e-30),
        )

    def _again(self, old: Tensor, oracle: Oracle) -> Tensor | None:
        """Return which proposals give a changed site another value: the first of a step, if the site has a third."""
        several = oracle.domain.several
        if several is None or self.proposals == 1:
            return None
        first = torch.arange(self.proposals, device=old.device) == 0
        return several.expand(len(old), -1).gather(1, old) & first

    def _found(self, oracle: Oracle) -> Tensor:
        """Return which rows have an example."""
        return oracle.incumbents.best_l0 <= oracle.domain.sites

    def _best(self, oracle: Oracle) -> Tensor:
        """Return what a point must cost less than: the best example."""
        return oracle.incumbents.best_cost

    def _exchange(self, i: Tensor, j: int, draws: Draws, s: State, oracle: Oracle) -> Proposal:
        """Return the point with an old site put back and a new one changed.

        Where it has as many changes as the best example, none is changed; where there is no example, none is put back.
        """
        d, best = oracle.domain, self._best(oracle)
        x, a = d.by_site(d.x), d.by_site(s.a)
        old, new = (v[:, j, None, None].expand(-1, a.shape[1], 1) for v in (draws.old, draws.new))
        if d.weighted:
            swap, spared = self._affordable(draws.old[:, j], draws.new[:, j], s, oracle)
            old = torch.where(spared[:, None, None], new, old)
        else:
            swap = s.count < best
        value = torch.where(swap[:, None, None], draws.value[:, :, j, None], draws.clean[:, :, j, None])
        point = a.scatter(2, old, x.gather(2, old)).scatter(2, new, value).view_as(s.a)

        def order() -> Tensor:  # in which features join where the exchange breaks a rule
            return sites.joining(oracle, i).roll(j, 2).scatter(2, new, torch.inf).view_as(s.a)

        return Proposal(j, d.complete(point, order), best, swap)

    def _affordable(self, old: Tensor, new: Tensor, s: State, oracle: Oracle) -> tuple[Tensor, Tensor]:
        """Return whether a point with the new site would beat the best: first without the old site, then with it."""
        d, rank, best = oracle.domain, oracle.problem.rank, self._best(oracle)
        changed = d.changed(s.a).flatten(1).gather(1, old[:, None])[:, 0]
        more, back = d.cost(s.a) + d.costs[new], torch.where(changed, d.costs[old], 0.0)
        return rank(more - back, s.count + 1 - changed.long()) < best, rank(more, s.count + 1) < best

    def _chosen(self, s: State, turn: Tensor) -> Tensor:
        """Return which samples try a whole new choice: the likelier, the more it has saved beyond the best place."""
        if not self.choices:
            return torch.zeros_like(s.stuck)
        worth = (s.wins / s.tries) ** sites.FAVOUR
        return turn * (worth[:, CHOICE] + worth[:, :PLACES].amax(1)) < worth[:, CHOICE]

    def _judge(
        self, one: Proposal, m: Tensor, allowed: Tensor, s: State, draws: Draws, oracle: Oracle
    ) -> tuple[State, Draws, Judged]:
        """Move to the proposal where it succeeded or its margin is at most `allowed`."""
        j, point, best, swap = one
        won = self._best(oracle) < best
        taken = won | (m <= allowed)
        if j + 1 < self.proposals:
            # A site that was put back cannot be put back again. Later proposals that drew it take the site that came
            # for it instead, or, where none came, the next one drawn.
            came = torch.where(swap, draws.new[:, j], draws.old[:, j + 1])[:, None]
            again = taken[:, None] & (draws.old == draws.old[:, j, None])
            draws = draws._replace(old=torch.where(again, came, draws.old))
        new = replace(
            s,
            a=torch.where(ops.per_row(taken, point), point, s.a),
            count=torch.where(taken, oracle.l0(point), s.count),
            # After a success the point has as many changes as the best: one must go, whatever that does to the margin.
            m=torch.where(taken, m.masked_fill(won, torch.inf), s.m),
        )
        return new, draws, Judged(best, s.m, m, swap, taken)

    def _learnt(self, s: State, draws: Draws, judged: list[Judged], chosen: Tensor, oracle: Oracle) -> State:
        """Remember which sites were tried, and what each source saved: changes, or a part of the margin."""
        best, before, m, swap, taken = (torch.stack(column, 1) for column in zip(*judged, strict=True))
        saved = sites.saved(best, torch.cat([best[:, 1:], self._best(oracle)[:, None]], 1))
        part = ((before - m) / before.clamp(min=1e-30)).clamp(0, 1)
        closer = torch.where((saved == 0) & before.isfinite(), part, 0)
        gain = saved + closer
        swap[:, -1] &= ~chosen
        whole = F.pad(chosen.to(gain)[:, None, None], (self.proposals - 1, 0))
        tries = torch.cat([draws.credit * swap[:, None], whole], 1)
        known = Sources(s.wins, s.tries)
        known = sites.learn(known, (tries * gain[:, None]).sum(2), tries.sum(2), self.trust, self.proposals)
        worn = s.worn.scatter_add(1, draws.new, HALF * swap.to(s.worn))
        return replace(
            s,
            worn=worn * torch.exp(HALF * taken.sum(1))[:, None],
            stuck=gain.amax(1) == 0,
            wins=known.wins,
            tries=known.tries,
            done=sites.finished(oracle),
        )


@dataclass(frozen=True, kw_only=True)
class LongSearch(SwapSearch):
    """The same search with more steps than the queries fill: a point whose answer is remembered costs no query."""

    @cached_property
    def rates(self) -> Tensor:
        """Return the rates of swap search for each step; heat is nearly zero once the queries may be spent."""
        own = super(LongSearch, replace(self, steps=-(-self.steps // STEPS_FACTOR))).rates
        return own[torch.arange(self.steps).clamp(max=len(own) - 1)]


def _first(time: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the n shortest times of each row and their places; a row of fewer is repeated from its beginning."""
    shortest, where = time.topk(min(n, time.shape[1]), 1, largest=False)
    if n > time.shape[1]:
        again = torch.arange(n, device=time.device) % time.shape[1]
        return shortest[:, again], where[:, again]
    return shortest, where


def neighbours(changed: Tensor, like: Tensor, radius: int) -> tuple[Tensor, Tensor]:
    """Return 1 at sites within `radius` of a changed one, and within twice that; 1 everywhere without positions."""
    if like.ndim not in (3, 4):
        return (torch.ones_like(changed, dtype=like.dtype),) * 2
    here = changed.view(len(changed), -1, *like.shape[2:])
    pool = F.max_pool2d if like.ndim == 4 else F.max_pool1d
    close = pool(here.any(1, keepdim=True).to(like.dtype), 2 * radius + 1, stride=1, padding=radius)
    wide = pool(close, 2 * radius + 1, stride=1, padding=radius)
    return close.expand(here.shape).reshape(changed.shape), wide.expand(here.shape).reshape(changed.shape)
