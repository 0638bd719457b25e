"""What the phases of σ-swap share: the problem by sites, whole new choices of sites, and sources that earn their turn.

A site is what counts as one change: a feature, or a pixel with all its channels. Tensors by site are (rows, features of
a site, sites), or (rows, sites) where a site has one number.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from sigmazero.attacks._budget import by_site
from sigmazero.core import ops
from sigmazero.core.problem import Problem
from sigmazero.core.tally import Tally

SPARE = {True: 2, False: 9}  # queries of the verification at most, after an exact search and after a coarse one
FADE = 0.98  # what a proposal before counts against the current one
USUAL = 0.1  # how many changes a proposal saves, before anything is known
FAVOUR = 2  # power by which sources are preferred that saved more
MOST = 8  # changes saved by one proposal that count
FEW = 32  # from more changes than this a whole new choice may take off several at once


class Box(NamedTuple):
    """Clean values and the ends of the box."""

    x: Tensor
    lower: Tensor
    upper: Tensor

    def at(self, sites: Tensor) -> "Box":
        """The box of some sites, (rows, number)."""
        where = sites[:, None].expand(-1, self.x.shape[1], -1)
        return Box(*(v.gather(2, where) for v in self))

    @property
    def far(self) -> Tensor:
        """The end further away from the clean value."""
        return torch.where(self.upper - self.x >= self.x - self.lower, self.upper, self.lower)


class Ends(NamedTuple):
    """To which end each feature would go by the gradient, and what that promises per site, 1 for the best site."""

    end: Tensor
    gain: Tensor


class Sources(NamedTuple):
    """How many changes each source of proposals has saved, and how often it was asked, fading: (rows, sources)."""

    wins: Tensor
    tries: Tensor


def box(p: Problem) -> Box:
    """The problem by sites."""
    return Box(*(by_site(p, v) for v in (p.x, p.lower, p.upper)))


def ends(b: Box, g: Tensor) -> Ends:
    """The better end of each feature by the gradient of the margin."""
    end = torch.where(g <= 0, b.upper, b.lower)
    gain = total(g * (b.x - end))
    return Ends(end, gain / gain.amax(1, keepdim=True).clamp(min=1e-30))


def total(values: Tensor) -> Tensor:
    """Sum over the features of each site."""
    return values.sum(1) if values.shape[1] > 1 else values[:, 0]


def scaled(p: Problem, grad: Tensor) -> Tensor:
    """A gradient by sites with largest magnitude 1, so that the mean of several weighs them alike."""
    return by_site(p, grad / ops.per_row(ops.largest(grad).clamp(min=1e-30), grad))


def whole_choice(b: Box, e: Ends, n: Tensor, wave: Tensor, jitter: float) -> Tensor:
    """The n sites of largest gain, which vary by `jitter` of themselves, at the ends the gradient names."""
    score = torch.addcmul((1 - jitter) * e.gain, e.gain, wave, value=2 * jitter)
    least = ops.kth_largest(score, n.clamp(min=1, max=wave.shape[1])).clamp(min=1e-30)  # a gain of 0 promises nothing
    return torch.where((score >= least[:, None])[:, None], e.end, b.x)


def fewer(best: Tensor, draw: Tensor) -> Tensor:
    """How many sites a whole new choice has: one fewer than the best, or several fewer where those are many."""
    return best - 1 - (draw * (best - FEW).clamp(min=0) / 4).long()


def check(p: Problem, name: str) -> None:
    """Refuse a box without ends."""
    if not bool((p.upper - p.lower).isfinite().all()):
        raise ValueError(f"{name} moves features to the ends of the box: it needs finite bounds")


def finished(tally: Tally, cost: int, queries: int | None) -> Tensor:
    """One change cannot become none; and a step of `cost` queries that could exceed the limit is not taken."""
    done = tally.best_l0 <= 1
    return done if queries is None else done | spent(tally, cost, queries)


def spent(tally: Tally, cost: int, queries: int) -> Tensor:
    """For which samples a step of `cost` queries, with what is asked after it, could exceed the limit."""
    exact = tally.sure is None
    return tally.forwards + tally.backwards > queries - cost - SPARE[exact]


def saved(before: Tensor, after: Tensor) -> Tensor:
    """Changes saved by a proposal; the first one, found far off, counts no more than a few."""
    return (before - after).clamp(max=MOST)


def learn(known: Sources, saved: Tensor, asked: Tensor, trust: float, proposals: int = 1) -> Sources:
    """What is known after some proposals. None is ever given up: a little of what is usual returns to each."""
    fade = FADE**proposals
    usual, once = (1 - fade) * 0.1 * USUAL * trust, (1 - fade) * trust
    return Sources(
        torch.add(saved + usual, known.wins, alpha=fade),
        torch.add(asked + once, known.tries, alpha=fade),
    )
