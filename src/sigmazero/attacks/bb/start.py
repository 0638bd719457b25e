"""Starting points of the Brendel & Bethge attack: an adversarial point per row, and the walk from it towards x.

Rows need different numbers of tries, so a row that has its point is neither asked nor charged again: every call goes
to the rows that still search. Each row pays for exactly the points it looked at, pool images included.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from sigmazero.core import noise, ops
from sigmazero.core.oracle import Oracle
from sigmazero.core.problem import Problem

Candidates = Callable[[Problem, Tensor, range], Tensor]


def ask(oracle: Oracle, rows: Tensor, points: Tensor) -> Tensor:
    """Return whether points (n, K, ...) of some rows (n,) are adversarial, (n, K); leave the other rows alone."""
    part = oracle.part(rows)
    logits = part.logits(points, copies=points.shape[1])
    oracle.absorb(part, rows)
    fooled = torch.stack([part.goal.fooled(logits[:, k]) for k in range(points.shape[1])], 1)
    return fooled & logits.isfinite().all(2)


def first(oracle: Oracle, rows: Tensor, candidates: Candidates, blocks: Iterator[range]) -> tuple[Tensor, Tensor]:
    """Return the first adversarial candidate of each row (the clean input where none is), and whether one is."""
    found = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    start = oracle.domain.x[rows]
    broken = oracle.incumbents.broken
    for block in blocks:
        waiting = (~found).nonzero().squeeze(1)
        if not len(waiting):
            break
        points = candidates(oracle.problem.take(rows[waiting]), waiting, block)
        fooled = ask(oracle, rows[waiting], points)
        hit = fooled.any(1)
        chosen = points[torch.arange(len(points), device=rows.device), fooled.int().argmax(1)]
        start[waiting[hit]], found[waiting[hit]] = chosen[hit], True
    # A candidate with non-finite logits is only a bad candidate: a row that finds another one is not broken.
    failed = torch.ones_like(broken).index_copy(0, rows, ~found)
    oracle.incumbents.broken = broken | (oracle.incumbents.broken & failed)
    return start, found


def doubling(total: int, most: int = 64) -> Iterator[range]:
    """Yield blocks of 1, 1, 2, 4, ... numbers, so that few tries are wasted and few rounds are needed.

    >>> [len(block) for block in doubling(10)]
    [1, 1, 2, 4, 2]
    """
    done = 0
    while done < total:
        yield (block := range(done, min(done + min(max(done, 1), most), total)))
        done = block.stop


def from_noise(oracle: Oracle, directions: int, blends: int) -> tuple[Tensor, Tensor]:
    """Return uniform noise that is adversarial, blended with x as weakly as a grid of blends allows."""

    def directions_of(p: Problem, _: Tensor, block: range) -> Tensor:
        d = p.domain
        shape, span = d.x.shape[1:], d.upper - d.lower
        draws = [noise.uniform(p.seed, p.ids, k, shape, stream=0, dtype=d.x.dtype) for k in block]
        return torch.stack([d.clip(d.lower + span * u) for u in draws], 1)

    every = torch.arange(len(oracle.problem), device=oracle.domain.x.device)
    far, found = first(oracle, every, directions_of, doubling(directions))

    def blends_of(p: Problem, waiting: Tensor, block: range) -> Tensor:
        d = p.domain
        return torch.stack([d.clip(torch.lerp(d.x, far[rows][waiting], (k + 1) / blends)) for k in block], 1)

    rows = found.nonzero().squeeze(1)
    grid = iter(range(k, min(k + 20, blends)) for k in range(0, blends, 20))
    near, hit = first(oracle, rows, blends_of, grid)
    start = far.clone()
    start[rows] = torch.where(ops.per_row(hit, near), near, far[rows])
    return start, found


def from_pool(oracle: Oracle, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return for some rows the first input of the pool, in an order drawn per row, that reaches the goal."""
    p = oracle.problem.take(rows)
    pool = oracle.problem.x if p.pool is None else p.pool
    order = noise.uniform(p.seed, p.ids, 0, (len(pool),), stream=1, dtype=torch.float64).argsort(1)

    def pictures(part: Problem, waiting: Tensor, block: range) -> Tensor:
        chosen = order[waiting][:, block.start : block.stop]
        # Inside this row's box: what may not change keeps its clean value before the model is asked.
        d = part.domain
        return torch.stack([d.clip(d.from_user(pool[chosen[:, k]])) for k in range(chosen.shape[1])], 1)

    return first(oracle, rows, pictures, doubling(len(pool)))


def towards_clean(oracle: Oracle, rows: Tensor, start: Tensor, halvings: int) -> Tensor:
    """Search by halving for the smallest level ε whose point is adversarial; the point of the upper end, for `rows`.

    The point of level ε takes from the start all sites that differ from x by less than ε of the box. A difference as
    wide as the box is never taken, so the result need not be adversarial; the reference does the same.
    """
    d = oracle.domain.take(rows)
    gap = d.site_max(((start - d.x) / (d.upper - d.lower).clamp(min=1e-30)).abs())
    low, high = d.x.new_zeros(len(rows)), d.x.new_ones(len(rows))
    for _ in range(halvings if len(rows) else 0):
        middle = (low + high) / 2
        fooled = ask(oracle, rows, _adopt(d.x, start, gap, middle)[:, None]).squeeze(1)
        low, high = torch.where(fooled, low, middle), torch.where(fooled, middle, high)
    return _adopt(d.x, start, gap, high)


def _adopt(x: Tensor, start: Tensor, gap: Tensor, level: Tensor) -> Tensor:
    return torch.where(gap < ops.per_row(level, gap), start, x)
