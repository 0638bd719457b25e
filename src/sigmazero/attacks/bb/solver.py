"""The sub-problem of the Brendel & Bethge attack: the sparsest point on the linearised boundary, for a whole batch.

    minimise  #{sites where a + s differs from the clean x}   subject to   b·s = c,  ‖s‖₂ ≤ r,  a + s inside the box

All tensors are (N, channels, sites), one channel unless pixels are counted; the reference solves sample by sample.

    b    gradient of the margin at a          low, high  the box around a: low ≤ s ≤ high, 0 is inside
    c    change of the margin to make         d     x − a, the step that makes a site clean again
    r    radius of the trust region           t     multiplier of b·s = c divided by that of ‖s‖² ≤ r², times ½
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sigmazero.core import ops


@dataclass(frozen=True)
class Subproblem:
    """One question per row, in float64: `b`, `d`, `low`, `high` are (N, channels, sites), `c` and `r` are (N, 1, 1)."""

    b: Tensor
    d: Tensor
    low: Tensor
    high: Tensor
    c: Tensor
    r: Tensor

    def pull(self, t: Tensor) -> Tensor:
        """Return the point of the box nearest to −t b: where a site goes that is not made clean."""
        return torch.minimum(torch.maximum(-t * self.b, self.low), self.high)


@dataclass(frozen=True)
class Step:
    """The step, and the sites it makes clean exactly."""

    s: Tensor
    clean: Tensor


def solve(x: Tensor, a: Tensor, b: Tensor, c: Tensor, r: Tensor, lower: Tensor, upper: Tensor) -> Step:
    """Return the step of every row: x, a, b are (N, channels, sites), c and r are (N,), the bounds broadcast to a."""
    wide = a.double()
    p = Subproblem(
        b.double(),
        x.double() - wide,
        (lower.double() - wide).expand_as(wide),
        (upper.double() - wide).expand_as(wide),
        c.double()[:, None, None],
        r.double()[:, None, None],
    )
    greedy = closed_form(p)
    easy = (dot(p.b, greedy.s) - p.c).abs() <= 1e-9 * (1 + p.c.abs())  # else the box is too small to reach c
    easy &= square(greedy.s) <= p.r**2
    if wide.is_cuda:  # the host must not look: the step may be replayed
        hard = _within_radius(p)
        return ops.choose(easy, greedy, hard)
    rows = (~easy).flatten().nonzero().squeeze(1)
    if len(rows):
        hard = _within_radius(ops.take(p, rows))
        greedy.s[rows], greedy.clean[rows] = hard.s, hard.clean
    return greedy


def _within_radius(p: Subproblem) -> Step:
    """Return the answer where the radius matters: on the boundary if in reach, else as far towards it as possible."""
    furthest = boundary_step(p)
    reachable = dot(p.b, furthest).abs() >= p.c.abs()
    within = trust_region(p)
    return Step(torch.where(reachable, within.s, furthest), within.clean & reachable)


def dot(v: Tensor, w: Tensor) -> Tensor:
    """Return the inner product of each row, (N, 1, 1)."""
    return (v * w).sum((1, 2), keepdim=True)


def square(v: Tensor) -> Tensor:
    """Return the squared length of each row, (N, 1, 1)."""
    return dot(v, v)


def _settled(now: Tensor, before: Tensor) -> bool:
    """Return whether another round would change no row; never true on a device, where the host must not look."""
    return not now.is_cuda and torch.equal(now, before)


def boundary_step(p: Subproblem, iterations: int = 12) -> Tensor:
    """Return the step inside box and radius that moves b·s furthest towards c: −t b cut off at the box, as long as r.

    Deviation: where c > 0 the reference ignores the radius and moves away from the boundary, an artefact of its
    solver; here both signs of c take the largest admissible step towards the boundary.
    """
    face = torch.where(p.c * p.b > 0, p.high, p.low)
    bb, ff = p.b * p.b, face * face
    rr = p.r**2
    free = torch.ones_like(p.b, dtype=torch.bool)
    t = torch.zeros_like(p.c)
    # Each round finds the length that is right for the coordinates cut off so far. Lengths only grow and more are
    # cut off, so it ends at the solution and never goes beyond the radius before.
    for _ in range(iterations):
        rest = (rr - torch.where(free, 0.0, ff).sum((1, 2), keepdim=True)).clamp(min=0)
        slope = torch.where(free, bb, 0.0).sum((1, 2), keepdim=True)
        t, before = -p.c.sign() * (rest / slope.clamp(min=1e-300)).sqrt().clamp(max=1e150), t
        if _settled(t, before):
            break
        free = (t * p.b).abs() < face.abs()
    return p.pull(t)


def closed_form(p: Subproblem) -> Step:
    """Return the exact answer without radius: make everything clean, then push the most effective sites to the box.

    The margin still missing is ρ = c − b·d; a site gains at most v by moving to its face in the direction of ρ.
    Sites are taken by decreasing v, the last one by the fraction that is missing.
    """
    ρ = p.c - dot(p.b, p.d)
    face = torch.where(p.b * ρ > 0, p.high, p.low)
    v = (p.b * (face - p.d)).abs().sum(1)
    ordered, order = v.sort(1, descending=True)
    before = ordered.cumsum(1) - ordered
    share = ((ρ.abs()[:, 0] - before) / ordered.clamp(min=1e-300)).clamp(0, 1)
    share = torch.zeros_like(v).scatter_(1, order, share)[:, None]
    return Step(torch.lerp(p.d, face, share), (share == 0).expand_as(p.b).clone())


def trust_region(p: Subproblem, rounds: int = 12) -> Step:
    """Return the answer with the radius, from the dual; there must be one (see `solve`).

    For a given t the two constraints weigh together as ‖s + t b‖² ≤ r² + 2 t c + t²‖b‖². A site costs nothing of
    that if it goes to `pull(t)` and q more if it becomes clean, so the sparsest point makes clean the sites of
    smallest q as far as the budget goes. The best t, where the bound on the number of changes is highest, is where
    b·s − c changes sign; b·s falls with t. The sites that change on one side of it, or else those that change on
    either side, carry the answer. This replaces the reference's simplex search over both multipliers, its touch-up
    of a single coordinate and its perturbed retries.
    """
    unit = p.r / square(p.b).sqrt().clamp(min=1e-300)
    low, high = (torch.full_like(p.c, side * (math.pi / 2 - 1e-7)) for side in (-1, 1))
    first, last = (_relaxed(p, angle.tan() * unit) for angle in (low, high))
    above, below = first.excess, last.excess  # of the ends, halved where an end stays (the Illinois rule)
    for k in range(rounds):
        share = (above / (above - below).clamp(min=1e-300)).clamp(0.02, 0.98)
        middle = torch.lerp(low, high, share) if k % 3 else (low + high) / 2
        now = _relaxed(p, middle.tan() * unit)
        up = now.excess > 0
        above, below = torch.where(up, now.excess, above / 2), torch.where(up, below / 2, now.excess)
        low, high = torch.where(up, middle, low), torch.where(up, high, middle)
        first, last = ops.choose(up, now, first), ops.choose(~up, now, last)
    one, two = (end.step(p) for end in (first, last))
    weight = (first.excess / (first.excess - last.excess).clamp(min=1e-300)).clamp(0, 1)
    best = Step(torch.lerp(one.s, two.s, weight), one.clean & two.clean)
    feasible = square(best.s) <= p.r**2
    for clean in (best.clean, one.clean, two.clean):
        best, feasible = _better(p, best, feasible, _fill(p, clean))
    return best


def _better(p: Subproblem, best: Step, feasible: Tensor, other: Step) -> tuple[Step, Tensor]:
    """Return the other step where it is sound and sparser, or where the best so far is not sound."""
    exact = (dot(p.b, other.s) - p.c).abs() <= 1e-9 * p.c.abs()
    sound = exact & (square(other.s) <= p.r**2)
    fewer = other.clean.sum((1, 2), keepdim=True) > best.clean.sum((1, 2), keepdim=True)
    take = sound & (fewer | ~feasible)
    return ops.choose(take, other, best), feasible | sound


def _fill(p: Subproblem, clean: Tensor, iterations: int = 6) -> Step:
    """Return the shortest step with b·s = c that makes these sites clean: −t b cut off at the box elsewhere.

    b·s grows with −t and bends down as coordinates reach the box, so Newton's iterates from 0 end at the solution.
    """
    b = torch.where(clean, 0.0, p.b)
    bb = b * b
    missing = p.c - dot(p.b, torch.where(clean, p.d, 0.0))
    t, s = torch.zeros_like(p.c), torch.zeros_like(p.b)
    for _ in range(iterations):
        slope = torch.where((s > p.low) & (s < p.high), bb, 0.0).sum((1, 2), keepdim=True)
        t, before = t - (missing - dot(b, s)) / slope.clamp(min=1e-300), t
        if _settled(t, before):
            break
        s = torch.minimum(torch.maximum(-t * b, p.low), p.high)
    return Step(torch.where(clean, p.d, s), clean)


@dataclass(frozen=True)
class _Relaxed:
    """The solution for one t: sites with q up to `threshold` become clean; `excess` is b·s − c. All (N, 1, 1)."""

    t: Tensor
    threshold: Tensor
    excess: Tensor

    def step(self, p: Subproblem) -> Step:
        """Return the step that this stands for."""
        o = p.pull(self.t)
        clean = (_price(p, o, self.t) <= self.threshold).expand_as(o)
        return Step(torch.where(clean, p.d, o), clean)


def _price(p: Subproblem, o: Tensor, t: Tensor) -> Tensor:
    """Return q, the cost of making a site clean: (d + t b)² − (o + t b)² over its channels, without cancellation."""
    return ((p.d - o) * (p.d + o + 2 * t * p.b)).sum(1, keepdim=True)


def _relaxed(p: Subproblem, t: Tensor) -> _Relaxed:
    o = p.pull(t)
    q = _price(p, o, t)
    budget = p.r**2 - square(o) + 2 * t * (p.c - dot(p.b, o))
    threshold = _affordable(q, budget)
    s = torch.where(q <= threshold, p.d, o)
    return _Relaxed(t, threshold, dot(p.b, s) - p.c)


def _affordable(q: Tensor, budget: Tensor, pivots: int = 8) -> Tensor:
    """Return the largest threshold up to which all q sum to the budget at most; −1 if not even the smallest fits.

    On a device by a sort, which is a few launches. On a CPU, where it is far slower, by halving around means; stopping
    early leaves the threshold too low, which is safe.
    """
    if q.is_cuda:
        return _affordable_by_sorting(q.flatten(1), budget.flatten(1))[:, :, None]
    top, total = q.amax((1, 2), keepdim=True), q.sum((1, 2), keepdim=True)
    low, high = torch.where(total <= budget, top, -1.0), top
    n_low, n_high = torch.zeros_like(top), torch.full_like(top, q[0].numel())
    sum_low, sum_high = torch.zeros_like(top), total
    pivot = torch.full_like(top, torch.nan)
    for _ in range(pivots):
        pivot, before = ((sum_high - sum_low) / (n_high - n_low).clamp(min=1)).maximum(low), pivot
        if _settled(pivot, before):
            break
        below = q <= pivot
        total, n = torch.where(below, q, 0.0).sum((1, 2), keepdim=True), below.sum((1, 2), keepdim=True)
        fits = total <= budget
        low, high = torch.where(fits, pivot, low), torch.where(fits, high, pivot)
        n_low, n_high = torch.where(fits, n, n_low), torch.where(fits, n_high, n)
        sum_low, sum_high = torch.where(fits, total, sum_low), torch.where(fits, sum_high, total)
    return low


def _affordable_by_sorting(q: Tensor, budget: Tensor) -> Tensor:
    """Return the same for (N, sites) and (N, 1): of equal q either all are below the threshold or none."""
    ordered = q.sort(1).values
    fit = (ordered.cumsum(1) <= budget).sum(1, keepdim=True)
    first_too_many = torch.cat([ordered, torch.full_like(ordered[:, :1], torch.inf)], 1).gather(1, fit)
    n = (ordered < first_too_many).sum(1, keepdim=True)
    return torch.where(n > 0, ordered.gather(1, (n - 1).clamp(min=0)), -1.0)
