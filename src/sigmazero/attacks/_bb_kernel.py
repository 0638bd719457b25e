"""The sub-problem of the Brendel & Bethge attack as one kernel: a row stays in the registers of its program.

The method and the letters are those of _bb_solver, which is the definition; sums are taken in another order, so that
answers agree up to rounding. Nothing is sorted: where the definition takes sites in order of a value, the kernel looks
for the value at which the order would be cut. Functions that end in _row see one row, padded by sites that can neither
move nor matter (everything is 0 there). Triton comes with CUDA builds of torch; without it `supports` says no.
"""

import functools
import logging
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

import torch
from torch import Tensor

from sigmazero.core.tritons import Number, Pointer, constexpr, tl, triton

log = logging.getLogger(__name__)
Function = TypeVar("Function", bound=Callable[..., Any])
Row: TypeAlias = Any  # a value per site

_MOST_SITES = 16384  # beyond, a row no longer fits near its program


def _jit(function: Any) -> Any:
    return triton.jit(function) if triton else function


def _uncompiled(function: Function) -> Function:
    """Keep a call out of what `fuse` compiles."""
    return cast(Function, torch.compiler.disable(function))  # type: ignore[no-untyped-call]


@_uncompiled
def supports(a: Tensor) -> bool:
    """Whether the kernel takes a problem of this shape (N, channels, sites), and can be built here."""
    fits = a.shape[1] == 1 and 0 < a.shape[2] <= _MOST_SITES and len(a) > 0
    return fits and triton is not None and _builds(a.device)


@functools.cache
def _builds(device: torch.device) -> bool:
    """Whether a first small problem goes through: Triton needs a recent device and a C compiler."""
    point = torch.full((1, 1, 2), 0.5, device=device)
    one = torch.ones(1, device=device)
    try:
        solve(point, point, point, one, one, torch.zeros_like(point), torch.ones_like(point))
    except Exception as error:  # whatever the compiler and its tools raise
        log.warning("Triton cannot build the kernel of bb here (%s); the same without it, slower", error)
        return False
    return True


@_uncompiled
def solve(
    x: Tensor, a: Tensor, b: Tensor, c: Tensor, r: Tensor, lower: Tensor, upper: Tensor, *, warps: int | None = None
) -> tuple[Tensor, Tensor]:
    """The step of every row (float64) and the sites it makes clean; as _bb_solver.solve, for one channel."""
    n, _, sites = a.shape
    s = torch.empty(a.shape, dtype=torch.float64, device=a.device)
    clean = torch.empty(a.shape, dtype=torch.bool, device=a.device)
    block = max(128, triton.next_power_of_2(sites))
    lower, upper, r = lower.expand_as(a), upper.expand_as(a), r.expand(n)
    strides = (v.stride(k) for v in (lower, upper) for k in (0, 2))
    with torch.cuda.device_of(a):  # type: ignore[no-untyped-call]  # launches go to the current device
        _solve_row[(n,)](
            x.contiguous(),
            a.contiguous(),
            b.contiguous(),
            c.contiguous(),
            r,
            lower,
            upper,
            s,
            clean,
            sites,
            r.stride(0),
            *strides,
            BLOCK=block,
            num_warps=warps or max(4, min(16, block // 512)),
        )
    return s, clean


@_jit
def _solve_row(
    x: "Pointer",
    a: "Pointer",
    b: "Pointer",
    c: "Pointer",
    r: "Pointer",
    lower: "Pointer",
    upper: "Pointer",
    s: "Pointer",
    clean: "Pointer",
    sites: "Number",
    r_row: "Number",
    lower_row: "Number",
    lower_site: "Number",
    upper_row: "Number",
    upper_site: "Number",
    BLOCK: constexpr,
) -> None:
    """One program: load a row, answer it, write the step and the clean sites."""
    row = tl.program_id(0).to(tl.int64)
    site = tl.arange(0, BLOCK)
    here = site < sites
    place = row * sites + site
    at = tl.load(a + place, mask=here, other=0.0).to(tl.float64)
    d = tl.load(x + place, mask=here, other=0.0).to(tl.float64) - at
    g = tl.load(b + place, mask=here, other=0.0).to(tl.float64)
    low = tl.load(lower + row * lower_row + site * lower_site, mask=here, other=0.0).to(tl.float64) - at
    high = tl.load(upper + row * upper_row + site * upper_site, mask=here, other=0.0).to(tl.float64) - at
    change = tl.load(c + row).to(tl.float64)
    radius = tl.load(r + row * r_row).to(tl.float64)
    greedy, kept = _closed_form_row(g, d, low, high, change)
    reached, length = tl.reduce((g * greedy, greedy * greedy), 0, _sum_two)
    if (tl.abs(reached - change) <= 1e-9 * (1 + tl.abs(change))) & (length <= radius * radius):
        tl.store(s + place, greedy, mask=here)
        tl.store(clean + place, kept, mask=here)
    else:
        furthest = _pull_row(_boundary_row(g, low, high, change, radius), g, low, high)
        if tl.abs(tl.sum(g * furthest, 0)) >= tl.abs(change):
            step, kept = _trust_region_row(g, d, low, high, change, radius)
            tl.store(s + place, step, mask=here)
            tl.store(clean + place, kept, mask=here)
        else:
            tl.store(s + place, furthest, mask=here)
            tl.store(clean + place, site < 0, mask=here)


@_jit
def _sum_two(a: "Number", b: "Number", c: "Number", d: "Number") -> Any:
    return a + c, b + d


@_jit
def _sum_three(a: "Number", b: "Number", c: "Number", d: "Number", e: "Number", f: "Number") -> Any:
    return a + d, b + e, c + f


@_jit
def _sum_two_least(a: "Number", b: "Number", c: "Number", d: "Number", e: "Number", f: "Number") -> Any:
    return a + d, b + e, tl.minimum(c, f)


@_jit
def _pull_row(t: "Number", b: "Row", low: "Row", high: "Row") -> Any:
    return tl.minimum(tl.maximum(-t * b, low), high)


@_jit
def _cut_row(v: "Row", budget: "Number") -> Any:
    """Where to cut the sites, by increasing v ≥ 0, so that those below sum to the budget at most.

    Returns (under, over, end): v up to `under` fits, `over` is the next value there is, and v up to `end` fits no more.
    Between them is one value, or several equal ones of which some would fit. Pivots are means of what is still open,
    which is quick unless values spread over many magnitudes: every third one halves those.
    """
    some = v > 0
    total, count, over = tl.reduce(
        (tl.where(some, v, 0.0), some.to(tl.float64), tl.where(some, v, 1e300)), 0, _sum_two_least
    )
    all_fit = total <= budget
    under = tl.where(all_fit, 1e300, 0.0 * over)
    over = tl.where(all_fit, 1e300, over)
    end = 0.0 * over + 1e300
    rest = budget
    searching = (over <= rest).to(tl.int32)
    k = 0
    while (searching > 0) & (k < 60):
        spread = tl.sqrt(over) * tl.sqrt(tl.minimum(end, total))
        pivot = tl.maximum(tl.where(k % 3 == 2, spread, total / count), over)
        some = (v > under) & (v <= pivot)
        part, number, beyond = tl.reduce(
            (tl.where(some, v, 0.0), some.to(tl.float64), tl.where(v > pivot, v, 1e300)), 0, _sum_two_least
        )
        fits = part <= rest
        tied = part <= number * over * (1 + 1e-12)
        total = tl.where(fits, total - part, part)
        count = tl.where(fits, count - number, number)
        under = tl.where(fits, pivot, under)
        end = tl.where(fits, end, pivot)
        over = tl.where(fits, beyond, over)
        rest = tl.where(fits, rest - part, rest)
        searching = tl.where(fits, (over <= rest).to(tl.int32), 1 - tied.to(tl.int32))
        k += 1
    return under, over, tl.where(over > rest, over, end)


@_jit
def _closed_form_row(b: "Row", d: "Row", low: "Row", high: "Row", c: "Number") -> Any:
    rest = c - tl.sum(b * d, 0)
    face = tl.where(b * rest > 0, high, low)
    v = tl.abs(b * (face - d))
    rest = tl.abs(rest)
    under, _, end = _cut_row(v, tl.sum(v, 0) - rest)
    between = tl.where((v > under) & (v <= end), v, 0.0)
    rest -= tl.sum(tl.where(v > end, v, 0.0), 0)
    # Among equals the first ones are taken, the last of them by the fraction that is missing.
    share = (rest - (tl.cumsum(between, 0) - between)) / tl.maximum(v, 1e-300)
    share = tl.minimum(tl.maximum(share, 0.0), 1.0)
    share = tl.where(v > end, 1.0, tl.where(v > under, share, 0.0))
    return tl.where(share < 1, d + share * (face - d), face), share == 0


@_jit
def _boundary_row(b: "Row", low: "Row", high: "Row", c: "Number", r: "Number") -> Any:
    """The t of the step that goes furthest."""
    face = tl.where(c * b > 0, high, low)
    sign = (c > 0).to(tl.float64) - (c < 0).to(tl.float64)
    free = b == b
    t = 0.0 * r
    before = t - 1
    k = 0
    while (t != before) & (k < 12):
        before = t
        used, slope = tl.reduce((tl.where(free, 0.0, face * face), tl.where(free, b * b, 0.0)), 0, _sum_two)
        rest = tl.maximum(r * r - used, 0.0)
        t = -sign * tl.minimum(tl.sqrt(rest / tl.maximum(slope, 1e-300)), 1e150)
        free = tl.abs(t * b) < tl.abs(face)
        k += 1
    return t


@_jit
def _price_row(t: "Number", b: "Row", d: "Row", low: "Row", high: "Row") -> Any:
    o = _pull_row(t, b, low, high)
    return (d - o) * (d + o + 2 * t * b)


@_jit
def _trust_region_row(b: "Row", d: "Row", low: "Row", high: "Row", c: "Number", r: "Number") -> Any:
    unit = r / tl.maximum(tl.sqrt(tl.sum(b * b, 0)), 1e-300)
    right = 0.0 * r + (1.5707963267948966 - 1e-7)
    left = -right
    above, below = 0.0 * r, 0.0 * r
    t_left, t_right, cut_left, cut_right, excess_left, excess_right = above, above, above, above, above, above
    for k in range(14):  # the two ends, then twelve rounds between them
        share = above / tl.maximum(above - below, 1e-300)
        share = tl.minimum(tl.maximum(share, 0.02), 0.98)
        share = tl.where((k - 2) % 3 == 0, 0.5, share)
        angle = left + tl.where(k < 2, 1.0 * k, share) * (right - left)
        t = tl.sin(angle) / tl.cos(angle) * unit
        o = _pull_row(t, b, low, high)
        q = (d - o) * (d + o + 2 * t * b)
        length, moved = tl.reduce((o * o, b * o), 0, _sum_two)
        budget = r * r - length + 2 * t * (c - moved)
        under, over, _ = _cut_row(q, budget)
        cut = tl.where(
            budget < 0, -1.0, under / 2 + over / 2
        )  # amid the gap: q may be rounded otherwise when seen again
        excess = tl.sum(b * tl.where(q <= cut, d, o), 0) - c
        up = (k == 0) | ((k > 1) & (excess > 0))
        halved = tl.where(k < 2, 1.0, 0.5)
        above, below = tl.where(up, excess, above * halved), tl.where(up, below * halved, excess)
        left, right = tl.where(up & (k > 1), angle, left), tl.where(up | (k < 2), right, angle)
        t_left, cut_left = tl.where(up, t, t_left), tl.where(up, cut, cut_left)
        t_right, cut_right = tl.where(up, t_right, t), tl.where(up, cut_right, cut)
        excess_left, excess_right = tl.where(up, excess, excess_left), tl.where(up, excess_right, excess)
    weight = excess_left / tl.maximum(excess_left - excess_right, 1e-300)
    weight = tl.minimum(tl.maximum(weight, 0.0), 1.0)
    one = _price_row(t_left, b, d, low, high) <= cut_left
    two = _price_row(t_right, b, d, low, high) <= cut_right
    return _best_row(b, d, low, high, c, r, one, two, t_left, t_right, weight)


@_jit
def _best_row(
    b: "Row",
    d: "Row",
    low: "Row",
    high: "Row",
    c: "Number",
    r: "Number",
    one: "Row",
    two: "Row",
    t_one: "Number",
    t_two: "Number",
    weight: "Number",
) -> Any:
    """The sparsest sound step among the blend of both ends and what fills up their clean sites, or those of both."""
    from_one = tl.where(one, d, _pull_row(t_one, b, low, high))
    from_two = tl.where(two, d, _pull_row(t_two, b, low, high))
    blend = tl.where(one & two, d, from_one + weight * (from_two - from_one))
    length, most = tl.reduce((blend * blend, (one & two).to(tl.float64)), 0, _sum_two)
    feasible = (length <= r * r).to(tl.int32)
    choice, t_best = feasible * 0, 0.0 * c
    for k in range(1, 4):
        clean = (one | (k == 3)) & (two | (k == 2))
        t = _fill_row(b, d, low, high, c, clean)
        s = tl.where(clean, d, _pull_row(t, b, low, high))
        moved, length, number = tl.reduce((b * s, s * s, clean.to(tl.float64)), 0, _sum_three)
        sound = (tl.abs(moved - c) <= 1e-9 * tl.abs(c)) & (length <= r * r)
        take = sound & ((number > most) | (feasible == 0))
        choice, t_best, most = tl.where(take, k, choice), tl.where(take, t, t_best), tl.where(take, number, most)
        feasible = tl.where(sound, 1, feasible)
    clean = (one | (choice == 3)) & (two | (choice == 2))
    return tl.where(clean, d, tl.where(choice > 0, _pull_row(t_best, b, low, high), blend)), clean


@_jit
def _fill_row(b: "Row", d: "Row", low: "Row", high: "Row", c: "Number", clean: "Row") -> Any:
    """The t of the shortest step with b·s = c that makes these sites clean."""
    missing = c - tl.sum(tl.where(clean, b * d, 0.0), 0)
    t = 0.0 * c
    for _ in range(6):
        s = _pull_row(t, b, low, high)
        free = (s > low) & (s < high)
        slope, moved = tl.reduce((tl.where(clean | (free == 0), 0.0, b * b), tl.where(clean, 0.0, b * s)), 0, _sum_two)
        t -= (missing - moved) / tl.maximum(slope, 1e-300)
    return t
