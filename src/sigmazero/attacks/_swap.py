r"""Swap search: makes an adversarial example sparser by exchanging what it changes, mostly without gradients.

σ-zero and its kin rarely leave a change that could simply be undone; what they waste lies in *which* sites they
change. So the search stays one change below the best example known and exchanges one changed site for another as long
as that does not hurt: a success lowers the best by one, and the search goes on below it. Every changed site stands at
an end of the box. A step is four proposals, of which the first also asks for the gradient. What each part is worth
stands in docs/stronger.md.

    a    current point, one change fewer than the best            m      its margin; ∞ before it is known
    g    running mean of the margin's gradient                    gain   what a site's better end promises by it
    w    how likely a site is proposed                            tried  how often it was proposed in vain, fading
    n    how many sites to give up at once after a success        wins, tries  of each source of proposals, fading

A new site comes from one of four places: next to the changed sites by gain, or any there; from all sites by gain², or
any at all. Where gradients mislead only the blind draws find it, so a sample draws from a place as often as that place
has served it so far. A site proposed in vain becomes less likely. The site given up is drawn too, rather one that
contributes little; after a success several at once, fewer and fewer until that does not fail. A proposal is kept if it
is no worse, or little worse with a chance that falls to zero (annealing). The first proposal of a step may instead be
a whole new choice, the sites of largest gain, jittered: quick where gradients can be trusted; or, after an attack that
can go on, its next point. Again their success decides how often.

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> x, y = torch.full((1, 4), 0.5), torch.tensor([0])
>>> sparser = sz.refine(model, x, y, torch.zeros(1, 4), queries=100)
>>> int((sparser != x).sum())
2
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from sigmazero import noise, ops
from sigmazero.attack import Attack
from sigmazero.attacks import _budget as budget
from sigmazero.oracle import Answer, Oracle
from sigmazero.problem import Problem

PROPOSALS = 4
COST = PROPOSALS + 1  # queries of a step
LEAST = 5  # queries of the clean check, of the start and its gradient, and of two verifications
SPARE = {True: 2, False: 9}  # queries of the verification at most, after an exact search and after a coarse one
CHOICE, WALK = 4, 5  # the sources after the four places: whole new choices, and the walk of the attack before
USUAL = 0.2  # how often a proposal serves, before anything is known
FADE = 0.98  # what a proposal before counts against the current one


@dataclass
class State:
    """One row per sample; g is (rows, features of a site, sites), tried (rows, sites), wins and tries (rows, 6).

    `walk` is the state of the attack that goes on, if one does.
    """

    a: Tensor
    g: Tensor
    m: Tensor
    tried: Tensor
    n: Tensor
    wins: Tensor
    tries: Tensor
    done: Tensor
    walk: Any = None


class Walker(Protocol):
    """An attack that can go on inside the search: its state has a point `a`, and a gradient there moves it on."""

    @property
    def steps(self) -> int:
        """How many steps it took before."""

    def descend(self, i: Tensor, state: Any, g: Tensor, fooled: Tensor, oracle: Oracle) -> Any:
        """The state after step i, given the gradient of the margin's positive part at the point."""


class Box(NamedTuple):
    """The problem by sites: clean values, the end further away, and which sites can change at all."""

    x: Tensor
    lower: Tensor
    upper: Tensor
    far: Tensor
    movable: Tensor


class Ends(NamedTuple):
    """To which end each feature would go by the gradient, and what that promises per site, 1 for the best site."""

    end: Tensor
    gain: Tensor


class Proposal(NamedTuple):
    """A point to ask about, the site that is new in it, and the source of that idea."""

    point: Tensor
    new: Tensor
    source: Tensor


@dataclass(frozen=True, kw_only=True)
class SwapSearch(Attack):
    """Swap search from the points passed as `start`, or from the best point known; `steps` of five queries each.

    radius     how far "next to" reaches by gain, for inputs with positions; blind draws reach twice as far
    sharpness  power of the gain that sites from everywhere are drawn by
    choices    how often a step begins with a whole new choice, or a step of the walk, at first, against one place
    trust      how many proposals it takes to change the mind about the sources
    heat       how much of its margin a point may lose and still be kept, on average, at the start
    memory     weight of the past in the running gradient
    jitter     by how much of itself a gain may vary in a whole new choice
    bold       share of the changed sites to give up at once, at first
    queries    no sample asks more than this in all, forwards and backwards; None for no limit
    walker     the attack of the phase before, to go on with
    """

    name: str = "swap-search"
    steps: int = 200
    radius: int = 1
    sharpness: float = 2.0
    choices: float = 4.0
    trust: float = 10.0
    heat: float = 0.3
    memory: float = 0.5
    jitter: float = 0.5
    bold: float = 0.25
    queries: int | None = None
    walker: Walker | None = None

    paper: ClassVar[str] = "docs/stronger.md"
    unroll: ClassVar[int] = 2

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        super().__post_init__()
        if not 0 <= self.memory < 1:
            raise ValueError(f"memory={self.memory!r} must be at least 0 and less than 1")
        if self.queries is not None and not (int(self.queries) == self.queries and self.queries >= LEAST):
            raise ValueError(f"queries={self.queries!r} must be a whole number, {LEAST} or more (None for no limit)")
        if not self.trust > 0:
            raise ValueError(f"trust={self.trust!r} must be greater than 0")
        for name in ("radius", "sharpness", "choices", "heat", "jitter", "bold"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}={getattr(self, name)!r} must be 0 or greater")

    @property
    def limit(self) -> int | None:
        """The most queries of a sample."""
        return self.queries

    @cached_property
    def rates(self) -> Tensor:
        """Per step: the heat, and how many sites a whole new choice has where nothing was found yet."""
        return torch.tensor(
            [(self.heat * (1 - i / self.steps), 2.0 ** min(i + 3, 30)) for i in range(self.steps)], dtype=torch.float64
        )

    def init(self, oracle: Oracle) -> State:
        """Ask about the starting point and its gradient."""
        p = oracle.problem
        if not bool((p.upper - p.lower).isfinite().all()):
            raise ValueError(f"{self.name} moves features to the ends of the box: it needs finite bounds")
        answer = oracle.value_and_grad(p.clip(p.start) if p.start is not None else oracle.tally.best, p.margin)
        g = budget.by_site(p, _scaled(answer.grad))
        # The last two are worth a try where nothing is known, and soon given up where they fail.
        tries = g.new_tensor([self.trust] * CHOICE + [self.trust / 5] * 2).repeat(len(p), 1)
        wins = tries * g.new_tensor([USUAL] * CHOICE + [USUAL * self.choices] * 2)
        done = self._finished(oracle)
        oracle.retire(done)
        return State(
            a=oracle.tally.best,  # a start that does not reach the goal is none: then the search begins at x
            g=g,
            m=torch.full_like(answer.value, torch.inf),
            tried=torch.zeros_like(g[:, 0]),
            n=self._several(oracle),
            wins=wins,
            tries=tries,
            done=done,
        )

    def follow(self, oracle: Oracle, before: Any) -> State:
        """Begin at the best point known; the attack before may go on."""
        return replace(self.init(oracle), walk=before if self.walker is not None else None)

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Four proposals."""
        p = oracle.problem
        heat, many = oracle.row(self.rates, i)
        box = _box(p)
        ends = _ends(box, s.g)
        wave = noise.uniform(p.seed, p.ids, i, (p.sites,), dtype=p.x.dtype)
        draws = noise.uniform(p.seed, p.ids, i, (PROPOSALS, 5), stream=1, dtype=p.x.dtype)
        for j, draw in enumerate(draws.unbind(1)):
            best = oracle.tally.best_l0
            proposal = self._exchange(draw, wave, s, box, ends, best)
            if j == 0:
                proposal = self._or_other(proposal, draw, wave, s, box, ends, many, best)
                answer = oracle.value_and_grad(proposal.point.view_as(p.x), p.margin)
                m, g = answer.value, torch.lerp(budget.by_site(p, _scaled(answer.grad)), s.g, self.memory)
                s, ends = replace(s, g=g, walk=self._walked(s, proposal, answer, oracle)), _ends(box, g)
            else:
                m = p.margin(oracle.logits(proposal.point.view_as(p.x)))
            s = self._judge(s, proposal, m, heat * -torch.log1p(-draw[:, 3]), best, oracle)
        return replace(s, done=self._finished(oracle))

    def _finished(self, oracle: Oracle) -> Tensor:
        """One change cannot become none; and a step that could exceed the queries is not taken."""
        tally = oracle.tally
        done = tally.best_l0 <= 1
        if self.queries is None:
            return done
        return done | (tally.forwards + tally.backwards + COST + SPARE[oracle.exact] > self.queries)

    def _several(self, oracle: Oracle) -> Tensor:
        return (self.bold * oracle.tally.best_l0).long().clamp(min=1)

    def _exchange(self, draw: Tensor, wave: Tensor, s: State, box: Box, ends: Ends, best: Tensor) -> Proposal:
        """One changed site for another; with as many as the best, gives up some; without a best, takes one more."""
        a = s.a.view_as(box.x)
        changed = (a != box.x).any(1)
        served = (s.wins / s.tries)[:, :CHOICE]
        place = (draw[:, :1] * served.sum(1, keepdim=True) >= served.cumsum(1)[:, :-1]).sum(1)
        close, blind = (place < 2)[:, None], (place % 2 == 1)[:, None]
        near = torch.where(close, _beside(changed, s.a, self.radius, blind), 1.0)
        promise = torch.where(blind, 1.0, torch.where(close, ends.gain, ends.gain**self.sharpness))
        # A little for every site: none is impossible, and there is always one to draw.
        w = (promise * near + 1e-6) * torch.exp2(-s.tried) * (box.movable & ~changed)
        below = (changed.sum(1) < best)[:, None]
        new = _drawn(w, draw[:, 1:2]) & below
        held = (-(s.g * (a - box.x)).sum(1)).clamp(min=0)  # what each changed site contributes, to first order
        ease = (held / held.amax(1, keepdim=True).clamp(min=1e-30)).clamp(min=1e-2).rsqrt() * changed
        old = _drawn(ease, draw[:, 2:3]) & (best <= changed.shape[1])[:, None]
        # Each with its own chance, so that n go on average: the same wave for all proposals of a step, shifted.
        chance = s.n[:, None] * ease / ease.sum(1, keepdim=True).clamp(min=1e-30)
        old = torch.where(below | (s.n <= 1)[:, None], old, (wave + draw[:, :1]) % 1 < chance)
        end = torch.where(blind[:, None], box.far, ends.end)
        return Proposal(torch.where(new[:, None], end, torch.where(old[:, None], box.x, a)), new, place)

    def _walked(self, s: State, proposal: Proposal, answer: Answer, oracle: Oracle) -> Any:
        """The walk, a step further where it was asked about."""
        if self.walker is None or s.walk is None:
            return s.walk
        downhill = answer.grad * ops.per_row(answer.value > 0, answer.grad)
        last = torch.full_like(oracle.iteration, self.walker.steps - 1)
        further = self.walker.descend(last, s.walk, downhill, answer.fooled, oracle)
        return budget.start_again(proposal.source == WALK, further, s.walk)

    def _or_other(
        self,
        other: Proposal,
        draw: Tensor,
        wave: Tensor,
        s: State,
        box: Box,
        ends: Ends,
        many: Tensor,
        best: Tensor,
    ) -> Proposal:
        """A whole new choice or a step of the walk, as often as they served, against the best of the places.

        A choice has the sites of largest gain: one fewer than the best, or far fewer where that has very many.
        """
        served = s.wins / s.tries
        choosing, walking = served[:, CHOICE], served[:, WALK] * (s.walk is not None)
        u = draw[:, 4] * (choosing + walking + served[:, :CHOICE].amax(1))
        chosen, walked = u < choosing, (u >= choosing) & (u < choosing + walking)
        skipped = (draw[:, 0] * (best - 32).clamp(min=0) / 4).long()
        n = torch.where(best > wave.shape[1], many.long(), (best - 1 - skipped).clamp(min=1))
        score = ends.gain * (1 + self.jitter * (2 * wave - 1))
        sites = (score >= ops.kth_largest(score, n.clamp(max=wave.shape[1]))[:, None]) & (ends.gain > 0)
        point = torch.where(chosen[:, None, None], torch.where(sites[:, None], ends.end, box.x), other.point)
        if s.walk is not None:
            point = torch.where(walked[:, None, None], s.walk.a.reshape(point.shape), point)
        source = torch.where(walked, WALK, torch.where(chosen, CHOICE, other.source))
        return Proposal(point, other.new & ~(chosen | walked)[:, None], source)

    def _judge(self, s: State, tried: Proposal, m: Tensor, slack: Tensor, best: Tensor, oracle: Oracle) -> State:
        """Go on from the proposal if it is no worse, or not much; remember how its source served."""
        point = tried.point.view_as(s.a)
        won, few = oracle.tally.best_l0 < best, oracle.problem.l0(point) < best
        unknown, choice = s.m.isinf(), tried.source >= CHOICE
        bold = unknown & (s.n > 1) & ~choice
        # A whole new choice must be better than what is there; an exchange may be a little worse.
        allowed = torch.where(choice, s.m, s.m + slack * s.m.clamp(min=0, max=1e30))
        kept = won | (few & torch.where(unknown, ~bold & ~choice, m <= allowed))
        n = torch.where(bold & ~won, s.n // 2, s.n)
        served = won | (few & ~unknown & (m < s.m))
        one = F.one_hot(tried.source, WALK + 1) * (choice | tried.new.any(1))[:, None]
        vain = s.tried + tried.new
        return State(
            a=torch.where(ops.per_row(kept, point), point, s.a),
            g=s.g,
            # After a success there is one change too many again, and whichever goes, its point is where to go on from.
            m=torch.where(won, torch.inf, torch.where(kept, m, s.m)),
            tried=torch.where(kept[:, None], vain / 2, vain),
            n=torch.where(won, torch.minimum(n, self._several(oracle)), n),
            wins=FADE * s.wins + (1 - FADE) * 0.1 * USUAL * self.trust + one * served[:, None],
            tries=FADE * s.tries + (1 - FADE) * self.trust + one,
            done=s.done,
            walk=s.walk,
        )


def _scaled(grad: Tensor) -> Tensor:
    """A gradient with largest magnitude 1, so that the mean of several weighs them alike."""
    return grad / ops.per_row(ops.largest(grad).clamp(min=1e-30), grad)


def _box(p: Problem) -> Box:
    x, lower, upper = (budget.by_site(p, v) for v in (p.x, p.lower, p.upper))
    far = torch.where(upper - x >= x - lower, upper, lower)
    return Box(x, lower, upper, far, (lower < upper).any(1))


def _ends(box: Box, g: Tensor) -> Ends:
    up, down = g * (box.x - box.upper), g * (box.x - box.lower)
    gain = torch.maximum(up, down).sum(1)
    return Ends(torch.where(up >= down, box.upper, box.lower), gain / gain.amax(1, keepdim=True).clamp(min=1e-30))


def _beside(sites: Tensor, like: Tensor, radius: int, twice: Tensor) -> Tensor:
    """1 at sites within `radius` of those marked, or `twice` as far, in any channel; at all without positions."""
    if like.ndim not in (3, 4):
        return torch.ones_like(sites, dtype=like.dtype)
    here = sites.view(len(sites), -1, *like.shape[2:])
    pool = F.max_pool2d if like.ndim == 4 else F.max_pool1d
    close = pool(here.any(1, keepdim=True).to(like.dtype), 2 * radius + 1, stride=1, padding=radius)
    wide = pool(close, 2 * radius + 1, stride=1, padding=radius)
    return torch.where(ops.per_row(twice, wide), wide, close).expand(here.shape).reshape(sites.shape)


def _drawn(weights: Tensor, u: Tensor) -> Tensor:
    """One site per row with chances as the weights, as a mask; none where no weight is positive."""
    sums = weights.cumsum(1, dtype=torch.float64)
    # The first site at which the sum passes the draw; where all weights are 0, no sum passes it.
    place = (sums <= u * sums[:, -1:]).sum(1, keepdim=True)
    return torch.arange(weights.shape[1], device=weights.device) == place
