"""What the phases of σ-swap share: the problem by sites, whole new choices of sites, and what is known of sources.

A site is what counts as one change: a feature, or a pixel with all its channels. Tensors by site are (rows, features of
a site, sites), or (rows, sites) where a site has one number. A source is a way to find proposals; one that has saved
more changes is asked more often.
"""

from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from sigmazero.attacks._budget import by_site
from sigmazero.core import form as forms
from sigmazero.core import noise, ops
from sigmazero.core.oracle import Oracle
from sigmazero.core.problem import Problem
from sigmazero.core.tally import Tally

SPARE = {True: 2, False: 9}  # checks of the verification at most, after an exact search and after a coarse one
FADE = 0.98  # weight of the proposal before, where the current one has weight 1
USUAL = 0.1  # how many changes a proposal is expected to save, before anything is known
FAVOUR = 2  # sources are asked in proportion to this power of what they save
MOST = 8  # a proposal that saves more changes counts as one that saves so many
FEW = 32  # with more changes than this, a whole new choice may try several fewer at once


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
    """The end of the box to which the gradient points, per feature, and the gain it promises, per site, at most 1."""

    end: Tensor
    gain: Tensor


class Sources(NamedTuple):
    """How many changes each source has saved and how often it was asked, older ones counting less: (rows, sources)."""

    wins: Tensor
    tries: Tensor


def box(p: Problem) -> Box:
    """The problem by sites."""
    return Box(*(by_site(p, v) for v in (p.x, p.lower, p.upper)))


def ends(p: Problem, b: Box, g: Tensor) -> Ends:
    """The better end of each feature by the gradient of the margin; in a one-hot group the best other category."""
    end = torch.where(g <= 0, b.upper, b.lower)
    if p.form is not None and p.form.layout is not None and p.form.layout.one_hot is not None:
        end = torch.where(p.form.layout.one_hot & (b.lower < b.upper), _category(p.form.layout.pad, b, g), end)
    gain = total(g * (b.x - end))
    if p.costs is not None:
        gain = gain / p.costs
    return Ends(end, gain / gain.amax(1, keepdim=True).clamp(min=1e-30))


def _category(pad: Tensor, b: Box, g: Tensor) -> Tensor:
    """In every site, as if it were a one-hot group, 1 at the feature of lowest slope that is not 1 yet."""
    best = g.masked_fill(pad | (b.x == 1), torch.inf).argmin(1, keepdim=True)
    return (torch.arange(b.x.shape[1], device=g.device)[:, None] == best).to(b.x.dtype)


def blind(p: Problem, b: Box, e: Ends, i: Tensor) -> Tensor | None:
    """A legal value drawn for every feature of a space, by sites; None where the further end will do."""
    if p.form is None:
        return None
    drawn = noise.uniform(p.seed, p.ids, i, tuple(p.x.shape[1:]), stream=3, dtype=p.x.dtype)
    found = by_site(p, forms.some(p, drawn))
    many = ~by_site(p, p.form.inside(p.form.few[None]))
    found = torch.where(many, b.far, found)
    return torch.where((found == b.x).all(1, keepdim=True), e.end, found)


def several(p: Problem) -> Tensor | None:
    """Which sites, (1 or rows, sites), have more than two values without an order: categories and finite sets."""
    if p.form is None:
        return None
    layout, found = p.form.layout, []
    if layout is not None and layout.one_hot is not None:
        found.append((layout.one_hot & ((~layout.pad).sum(0) > 2))[None])
    if len(p.form.at):
        many = p.form.tables.isfinite().sum(1) > 2
        flat = torch.zeros_like(p.form.discrete).scatter(0, p.form.at, many)
        found.append(by_site(p, p.form.inside(flat[None])).any(1))
    return None if not found else reduce(torch.logical_or, found)


def joining(p: Problem, i: Tensor) -> Tensor | None:
    """In which order features, by sites, may join in where a change breaks a rule: drawn; None without rules."""
    if not p.tied:
        return None
    return by_site(p, noise.uniform(p.seed, p.ids, i, tuple(p.x.shape[1:]), stream=4, dtype=p.x.dtype))


def either(p: Problem, b: Box, i: Tensor) -> Tensor:
    """Values that trust no slope, by sites: either end of the box, the further one more often; or any legal value.

    Where the value drawn is the clean one, a site has that of the far end.
    """
    if p.form is not None:
        drawn = noise.uniform(p.seed, p.ids, i, tuple(p.x.shape[1:]), stream=3, dtype=p.x.dtype)
        found = by_site(p, forms.some(p, drawn))
        few, drawn = by_site(p, p.form.inside(p.form.few[None])), by_site(p, drawn)
        found = torch.where(few, found, torch.where(drawn * (b.upper - b.lower) < b.x - b.lower, b.lower, b.upper))
    else:
        drawn = noise.uniform(p.seed, p.ids, i, tuple(b.x.shape[1:]), stream=3, dtype=p.x.dtype)
        found = torch.where(drawn * (b.upper - b.lower) < b.x - b.lower, b.lower, b.upper)
    return torch.where((found == b.x).all(1, keepdim=True), b.far, found)


def total(values: Tensor) -> Tensor:
    """Sum over the features of each site."""
    return values.sum(1) if values.shape[1] > 1 else values[:, 0]


def scaled(p: Problem, grad: Tensor) -> Tensor:
    """A gradient by sites with largest magnitude 1, so that the mean of several weighs them alike."""
    return by_site(p, grad / ops.per_row(ops.largest(grad).clamp(min=1e-30), grad))


def whole_choice(b: Box, e: Ends, n: Tensor, wave: Tensor, jitter: float, costs: Tensor | None = None) -> Tensor:
    """The n sites of largest gain moved to their ends; `wave` in [0, 1) varies each gain by at most ±`jitter`.

    Where sites have costs, n is what they must stay below together.
    """
    score = torch.addcmul((1 - jitter) * e.gain, e.gain, wave, value=2 * jitter)
    if costs is not None:
        order = score.argsort(1, descending=True)
        within = costs[order].cumsum(1) < n[:, None]
        chosen = torch.zeros_like(within).scatter(1, order, within) & (score > 0)
        return torch.where(chosen[:, None], e.end, b.x)
    least = ops.kth_largest(score, n.clamp(min=1, max=wave.shape[1])).clamp(min=1e-30)  # no site without a gain
    return torch.where((score >= least[:, None])[:, None], e.end, b.x)


def fewer(oracle: Oracle, draw: Tensor) -> Tensor:
    """How many sites a whole new choice changes: one fewer than the best example, or several fewer than a large one.

    Where sites have costs, it is what the best example costs.
    """
    best = oracle.tally.best_cost
    if oracle.problem.costs is not None:
        return best
    return best - 1 - (draw * (best - FEW).clamp(min=0) / 4).long()


def finished(oracle: Oracle, cost: int, queries: int | None) -> Tensor:
    """Which rows end: those with one change, or the cheapest, which cannot become none, and those `spent` names."""
    tally, form = oracle.tally, oracle.problem.form
    done = tally.best_cost <= (1 if form is None else form.cheapest)
    return done if queries is None else done | spent(tally, cost, queries)


def spent(tally: Tally, cost: int, queries: int) -> Tensor:
    """Rows in which a step of `cost` queries, together with the verification, could exceed the limit."""
    spare = tally.checks * SPARE[tally.sure is None]
    return tally.forwards + tally.backwards > queries - cost - spare


def saved(before: Tensor, after: Tensor) -> Tensor:
    """Changes saved by a proposal; the first example found, which saves very many, counts as a few."""
    return (before - after).clamp(max=MOST)


def learn(known: Sources, saved: Tensor, asked: Tensor, trust: float, proposals: int = 1) -> Sources:
    """What is known after some more proposals.

    A little of the first expectation returns to each source, so that none is ever given up.
    """
    fade = FADE**proposals
    usual, once = (1 - fade) * 0.1 * USUAL * trust, (1 - fade) * trust
    return Sources(
        torch.add(saved + usual, known.wins, alpha=fade),
        torch.add(asked + once, known.tries, alpha=fade),
    )
