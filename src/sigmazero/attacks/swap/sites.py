"""Shared by the phases of σ-swap: gains of sites, whole new choices of sites, and how well sources of proposals did.

A site is what counts as one change: a feature, or a pixel with all its channels. Tensors by site are (rows, features of
a site, sites), or (rows, sites) where a site has one number. A source is a way to find proposals; one that has saved
more changes is used more often.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from sigmazero.core import ops
from sigmazero.core.domain import Domain
from sigmazero.core.oracle import Oracle

FADE = 0.98  # weight of the proposal before, where the current one has weight 1
EXPECTED_SAVED = 0.1  # how many changes a proposal is expected to save, before anything is known
FAVOUR = 2  # sources are used in proportion to this power of what they save
MAX_SAVED = 8  # a proposal that saves more changes counts as this many
MANY_CHANGES = 32  # with more changes than this, a whole new choice may try several fewer at once


class Ends(NamedTuple):
    """The end of the box to which the gradient points, per feature, and the gain it promises, per site, at most 1."""

    end: Tensor
    gain: Tensor


class Sources(NamedTuple):
    """How many changes each source has saved and how often it was used, older ones counting less: (rows, sources)."""

    wins: Tensor
    tries: Tensor


def ends(d: Domain, g: Tensor) -> Ends:
    """Return the best value of each feature by the gradient of the margin, and its gain for its cost."""
    end = d.best_values(g)
    gain = total(g * (d.by_site(d.x) - end)) / d.costs
    return Ends(end, gain / gain.amax(1, keepdim=True).clamp(min=1e-30))


def blind(oracle: Oracle, e: Ends, i: Tensor) -> Tensor:
    """Return random legal values where there are few, else the farther end.

    Where that would change nothing, a site has the end in `e`.
    """
    d = oracle.domain
    found = d.sample(lambda: oracle.uniform(i, stream=3), d.far())
    return torch.where((found == d.by_site(d.x)).all(1, keepdim=True), e.end, found)


def either(oracle: Oracle, i: Tensor) -> Tensor:
    """Return values that trust no slope: either end of the box, the further one more often; or any legal value.

    Where the value drawn is the clean one, a site has that of the far end.
    """
    d, u = oracle.domain, oracle.uniform(i, stream=3)
    x, lower, upper = d.box
    found = d.sample(lambda: u, torch.where(d.by_site(u) * (upper - lower) < x - lower, lower, upper))
    return torch.where((found == x).all(1, keepdim=True), d.far(), found)


def joining(oracle: Oracle, i: Tensor) -> Tensor:
    """Return random numbers by sites: the order in which features join where a change breaks a rule."""
    return oracle.domain.by_site(oracle.uniform(i, stream=4))


def total(values: Tensor) -> Tensor:
    """Sum over the features of each site."""
    return values.sum(1) if values.shape[1] > 1 else values[:, 0]


def scaled(d: Domain, grad: Tensor) -> Tensor:
    """Return a gradient by sites, scaled to a largest magnitude of 1, so that the mean of several weighs them alike."""
    return d.by_site(grad / ops.per_row(ops.largest(grad).clamp(min=1e-30), grad))


def whole_choice(d: Domain, e: Ends, n: Tensor, wave: Tensor, jitter: float) -> Tensor:
    """Move the n sites of largest gain to their ends; `wave` in [0, 1) varies each gain by at most ±`jitter`.

    Where some sites cost more than others, n is a cost, and the chosen sites together must cost less.
    """
    score = torch.addcmul((1 - jitter) * e.gain, e.gain, wave, value=2 * jitter)
    return torch.where(d.choose(score, n)[:, None], e.end, d.by_site(d.x))


def fewer(d: Domain, best: Tensor, draw: Tensor) -> Tensor:
    """Return the size of a whole new choice: one site fewer than the best example, or several fewer than a large one.

    Where some sites cost more than others, the size is a cost: that of the best example.
    """
    if d.weighted:
        return best
    return best - 1 - (draw * (best - MANY_CHANGES).clamp(min=0) / 4).long()


def finished(oracle: Oracle) -> Tensor:
    """Return which rows end: their best example is one change, or the cheapest one, and cannot get better."""
    return oracle.incumbents.best_cost <= oracle.domain.least(1)


def saved(before: Tensor, after: Tensor) -> Tensor:
    """Return the changes that a proposal saved, but at most a few: the first example found saves very many."""
    return (before - after).clamp(max=MAX_SAVED)


def learn(known: Sources, saved: Tensor, used: Tensor, trust: float, proposals: int = 1) -> Sources:
    """Return the sources after some more proposals.

    A little of the first expectation returns to each source, so that none is ever given up.
    """
    fade = FADE**proposals
    usual, once = (1 - fade) * 0.1 * EXPECTED_SAVED * trust, (1 - fade) * trust
    return Sources(
        torch.add(saved + usual, known.wins, alpha=fade),
        torch.add(used + once, known.tries, alpha=fade),
    )
