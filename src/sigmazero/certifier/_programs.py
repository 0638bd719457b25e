"""What the programs of `_kernels` do, in the language of Triton: one program does one form, or a part of one."""

from collections.abc import Callable
from typing import Any, TypeAlias, cast

from sigmazero.certifier._tritons import Number, Pointer, constexpr, tl, triton

Block: TypeAlias = Any  # a value per place


def _jit(*sizes: str) -> Callable[[Any], Any]:
    """A kernel that is not compiled anew for other values of these sizes, which change from batch to batch."""
    return cast(Callable[[Any], Any], triton.jit(do_not_specialize=sizes)) if triton else lambda function: function


@_jit("top", "left", "h", "w", "high", "wide", "tall", "broad", "by_row", "by_y", "by_x", "by_c")
def lay_form(
    parts: "Pointer",
    lines: "Pointer",
    tasks: "Pointer",
    begin: "Pointer",
    origin: "Pointer",
    out: "Pointer",
    sums: "Pointer",
    top: "Number",
    left: "Number",
    h: "Number",
    w: "Number",
    high: "Number",
    wide: "Number",
    tall: "Number",
    broad: "Number",
    by_row: "Number",
    by_y: "Number",
    by_x: "Number",
    by_c: "Number",
    KY: constexpr,
    KX: constexpr,
    SY: constexpr,
    SX: constexpr,
    DY: constexpr,
    DX: constexpr,
    C: constexpr,
    BLOCK: constexpr,
) -> None:
    """One program: a block of a form, or with lines the whole of it block by block, and its two sums."""
    row = tl.program_id(0).to(tl.int64)
    y0, x0 = _pair(origin, row)
    first_y, first_x = _pair(begin, row)
    total = high * wide * C
    size = tl.zeros((BLOCK,), tl.float64)
    offset = tl.zeros((BLOCK,), tl.float64)
    start = tl.program_id(1) * BLOCK
    while start < total:
        number = start + tl.arange(0, BLOCK)
        here = number < total
        c = number % C
        x = number // C % wide + x0
        y = number // C // wide + y0
        mine = parts + row * by_row + c * by_c
        v, u = y - top - first_y, x - left - first_x
        a = _sum_taps(mine, here, v, u, h, w, by_y, by_x, KY, KX, SY, SX, DY, DX, C)
        if lines is not None:
            y = tl.minimum(tl.maximum(y + 1, 0), tall - 1)  # beyond the layer it is the ring
            x = tl.minimum(tl.maximum(x + 1, 0), broad - 1)
            place = (tl.load(tasks + row) * tall + y) * broad + x
            line = lines + place * (4 * C) + tl.where(a > 0, c, c + C)
            size += tl.abs(a)
            offset += a * tl.load(line + 2 * C, mask=here, other=0.0)
            a = a * tl.load(line, mask=here, other=0.0)
        tl.store(out + row * total + number, a, mask=here)
        start += tl.num_programs(1) * BLOCK
    if lines is not None:
        tl.store(sums + 2 * row, tl.sum(size, 0))
        tl.store(sums + 2 * row + 1, tl.sum(offset, 0))


@_jit()
def _pair(pairs: "Pointer", row: "Number") -> Any:
    """The two numbers of a row, or 0 and 0 where there are none."""
    if pairs is None:
        return 0, 0
    else:  # noqa: RET505  # the compiler follows one branch alone
        return tl.load(pairs + 2 * row).to(tl.int32), tl.load(pairs + 2 * row + 1).to(tl.int32)


@_jit()
def _sum_taps(
    parts: "Pointer",
    here: "Block",
    y: "Block",
    x: "Block",
    h: "Number",
    w: "Number",
    by_y: "Number",
    by_x: "Number",
    KY: constexpr,
    KX: constexpr,
    SY: constexpr,
    SX: constexpr,
    DY: constexpr,
    DX: constexpr,
    C: constexpr,
) -> Any:
    """The sum of what the windows hold for some places, whose coordinates count from the first window's begin."""
    here = here & (y >= 0) & (x >= 0)
    a = (y * 0).to(tl.float64)
    # Without dilation only every so many-th row of a window meets a place, as the stride says.
    NY: tl.constexpr = (KY + SY - 1) // SY if DY == 1 else KY
    NX: tl.constexpr = (KX + SX - 1) // SX if DX == 1 else KX
    for m in tl.static_range(NY):
        i = y % SY + m * SY if DY == 1 else y * 0 + m
        p = y - i * DY
        good = here & (i < KY) & (p >= 0) & (p % SY == 0) & (p // SY < h)
        for n in tl.static_range(NX):
            j = x % SX + n * SX if DX == 1 else x * 0 + n
            q = x - j * DX
            seen = good & (j < KX) & (q >= 0) & (q % SX == 0) & (q // SX < w)
            a += tl.load(parts + p // SY * by_y + q // SX * by_x + (i * KX + j) * C, mask=seen, other=0.0)
    return a


@_jit("count", "places", "rounds", "by_row", "wide", "tall", "broad")
def best_form(
    a: "Pointer",
    tasks: "Pointer",
    origin: "Pointer",
    sites: "Pointer",
    lo: "Pointer",
    hi: "Pointer",
    ringed: "Pointer",
    firsts: "Pointer",
    ranks: "Pointer",
    out: "Pointer",
    count: "Number",
    places: "Number",
    rounds: "Number",
    by_row: "Number",
    wide: "Number",
    tall: "Number",
    broad: "Number",
    C: constexpr,
    PIXELS: constexpr,
    G: constexpr,
    BLOCK: constexpr,
    TWINS: constexpr,
) -> None:
    """One program: in each round the best gain of each group that comes after those of the rounds before.

    Gains are in order of value, and of place where values are equal, so that two rounds never take the same site.
    """
    row = tl.program_id(0).to(tl.int64)
    task = tl.load(tasks + row)
    group = tl.arange(0, G)
    first = tl.load(firsts + task * count + group, mask=group < count, other=-1)
    rank = tl.load(ranks + task * count + group, mask=group < count, other=-1)
    y0, x0 = _pair(origin, row)
    mine = a + row * by_row
    value = tl.zeros((G,), tl.float64) + float("inf")
    place = tl.zeros((G,), tl.int32) - 1
    taken = tl.zeros((G,), tl.float64)
    turn = 0
    while turn < rounds:
        best = tl.zeros((G,), tl.float64) - 1
        where = tl.zeros((G,), tl.int32)
        start = 0
        while start < places:
            number = start + tl.arange(0, BLOCK)
            if ringed is None:
                gain, free = _listed_gains(mine, sites, lo, hi, number, task, group, count, places, C)
            else:
                gain, free = _seen_gains(
                    mine, ringed, number, places, task, y0, x0, first, wide, tall, broad, C, PIXELS
                )
            best, where = _better(gain, free, number, value, place, best, where, TWINS)
            start += BLOCK
        taken = tl.where(rank == turn, tl.maximum(best, 0.0), taken)
        value = best
        place = where
        turn += 1
    tl.store(out + row, tl.sum(taken, 0))


@_jit()
def _better(
    gain: "Block",
    free: "Block",
    number: "Block",
    value: "Block",
    place: "Block",
    best: "Block",
    where: "Block",
    TWINS: constexpr,
) -> Any:
    """The best gain of each group and its place so far, with those of some more places after them."""
    gain = tl.where(gain == gain, gain, float("inf"))  # what is not a number may be anything
    if TWINS:
        later = (gain == value[:, None]) & (number[None, :] > place[:, None])
        free = free & ((gain < value[:, None]) | later)
    most = tl.max(tl.where(free, gain, -1.0), 1)
    if TWINS:
        first = tl.min(tl.where(free & (gain == most[:, None]), number[None, :], 2147483647), 1)
        where = tl.where(most > best, first, where)
    return tl.maximum(best, most), where


@_jit()
def _listed_gains(
    a: "Pointer",
    sites: "Pointer",
    lo: "Pointer",
    hi: "Pointer",
    number: "Block",
    task: "Number",
    group: "Block",
    count: "Number",
    places: "Number",
    C: constexpr,
) -> Any:
    """Gains (groups, places) of sites that are listed, and which there are."""
    here = (group < count)[:, None] & (number < places)[None, :]
    at = (task * count + group[:, None]) * places + number[None, :]
    site = tl.load(sites + at, mask=here, other=0)
    gain = tl.zeros_like(at).to(tl.float64)
    for c in tl.static_range(C):
        gain += _gain(a + site * C + c, lo + at * C + c, hi + at * C + c, here)
    return gain, here


@_jit()
def _seen_gains(
    a: "Pointer",
    ringed: "Pointer",
    number: "Block",
    places: "Number",
    task: "Number",
    y0: "Number",
    x0: "Number",
    first: "Block",
    wide: "Number",
    tall: "Number",
    broad: "Number",
    C: constexpr,
    PIXELS: constexpr,
) -> Any:
    """Gains (1, places) of what a window sees, and which of them are of which group."""
    here = number < places
    position = number if PIXELS else number // C
    y = tl.minimum(tl.maximum(position // wide + y0 + 1, 0), tall - 1)  # beyond the image it is the ring
    x = tl.minimum(tl.maximum(position % wide + x0 + 1, 0), broad - 1)
    at = ringed + ((task * tall + y) * broad + x) * (2 * C + (1 if PIXELS else C))
    if PIXELS:
        gain = tl.zeros_like(number).to(tl.float64)
        for c in tl.static_range(C):
            gain += _gain(a + position * C + c, at + c, at + C + c, here)
        label = tl.load(at + 2 * C, mask=here, other=0.0)
    else:
        c = number % C
        gain = _gain(a + number, at + c, at + C + c, here)
        label = tl.load(at + 2 * C + c, mask=here, other=0.0)
    # A group's label is one more than its number; 0 is none, and a group that is padding has -1 for a first.
    mine = (label.to(tl.int32)[None, :] == first.to(tl.int32)[:, None] + 1) & (first >= 0)[:, None]
    return gain[None, :], mine & here[None, :]


@_jit()
def _gain(a: "Pointer", lo: "Pointer", hi: "Pointer", here: "Block") -> Any:
    """How far a feature can bring a form down; not a number if either product is none."""
    value = -tl.load(a, mask=here, other=0.0)
    one = value * tl.load(lo, mask=here, other=0.0)
    other = value * tl.load(hi, mask=here, other=0.0)
    return tl.where((one > other) | (one != one), one, other)
