"""Steps back through a network as kernels, each of which reads and writes every number once.

The definitions are those in tensor operations: `layers.overlay`, `Forms.shifted`, `backward.bent` and `Groups.least`.
Sums are taken in another order, so that answers agree up to rounding, of which ADR 23 speaks for any order. One program
does one form (a part of one where nothing is summed over it). Triton comes with CUDA builds of torch; without it
`supports` says no.
"""

import functools
import importlib
import importlib.util
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch
from torch import Tensor

log = logging.getLogger(__name__)
triton: Any = importlib.import_module("triton") if importlib.util.find_spec("triton") else None
tl: Any = importlib.import_module("triton.language") if triton else None

# The compiler looks names up that it meets in an annotation and knows only its own: ours are quoted.
Block: TypeAlias = Any  # a value per place
Number: TypeAlias = Any
Pointer: TypeAlias = Any
Pair = tuple[int, int]
if TYPE_CHECKING:
    constexpr: TypeAlias = Any
else:
    constexpr = tl.constexpr if triton else Any

_MOST_TAPS = 64  # numbers that are summed for one; each is a piece of code of its own


def _jit(*sizes: str) -> Callable[[Any], Any]:
    """A kernel that is not compiled anew for other values of these sizes, which change from batch to batch."""
    return cast(Callable[[Any], Any], triton.jit(do_not_specialize=sizes)) if triton else lambda function: function


def supports(a: Tensor) -> bool:
    """Whether the kernels take such numbers, and can be built here."""
    return triton is not None and a.dtype == torch.float64 and _builds(a.device)


@functools.cache
def _builds(device: torch.device) -> bool:
    """Whether a first small problem goes through: Triton needs a recent device and a C compiler."""
    try:
        lay(torch.ones(1, 1, 1, 1, 1, 1, dtype=torch.float64, device=device), (1, 1), (1, 1), (0, 0), None, (1, 1))
    except Exception as error:  # whatever the compiler and its tools raise
        log.warning("Triton cannot build the kernels of certify here (%s); the same without them, slower", error)
        return False
    return True


def reaches(kernel: Pair, stride: Pair, dilation: Pair) -> bool:
    """Whether windows of this kind can be laid over each other by a kernel."""
    taps = [-(-k // s) if d == 1 else k for k, s, d in zip(kernel, stride, dilation, strict=True)]
    return taps[0] * taps[1] <= _MOST_TAPS


def lay(
    parts: Tensor, stride: Pair, dilation: Pair, begin: "Tensor | Pair", origin: Tensor | None, size: Pair
) -> Tensor:
    """Windows (rows, h, w, height, width, channels) laid over each other and summed, seen in another frame.

    `begin` is where the first window of each row begins in the layer, one pair for all or one for each row. What is
    returned begins at `origin` (0, 0 without it) and has this size; what no window covers is 0.
    """
    out = parts.new_empty(len(parts), *size, parts.shape[5])
    _launch(parts, stride, dilation, begin, origin, out)
    return out


def bend(
    parts: Tensor,
    stride: Pair,
    dilation: Pair,
    begin: "Tensor | Pair",
    origin: Tensor | None,
    size: Pair,
    lines: Tensor,
    tasks: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """As `lay`, then back through a ReLU with lines (tasks, height, width, 4 channels) that have a ring of zeros.

    Coefficients, the sums of their magnitudes before the ReLU, and the constants.
    """
    out = parts.new_empty(len(parts), *size, parts.shape[5])
    sums = parts.new_zeros(len(parts), 2)
    _launch(parts, stride, dilation, begin, origin, out, lines.contiguous(), tasks.contiguous(), sums)
    return out, sums[:, 0], sums[:, 1]


def _launch(
    parts: Tensor,
    stride: Pair,
    dilation: Pair,
    begin: "Tensor | Pair",
    origin: Tensor | None,
    out: Tensor,
    lines: Tensor | None = None,
    tasks: Tensor | None = None,
    sums: Tensor | None = None,
) -> None:
    rows, h, w, high, wide, channels = parts.shape
    if h == w == 1 and dilation == (1, 1):  # nothing is summed
        parts, h, w, high, wide, stride = parts[:, 0, 0, :, :, None, None], high, wide, 1, 1, (1, 1)
    if high * wide > 1 and parts.stride()[3:] != (wide * channels, channels, 1):
        parts = parts.contiguous()
    total = out[0].numel() if rows else 0
    if not total:
        return
    block = min(512, max(64, triton.next_power_of_2(total)))
    first = begin if isinstance(begin, tuple) else (0, 0)
    with torch.cuda.device_of(parts):  # type: ignore[no-untyped-call]  # launches go to the current device
        _lay_form[(rows, -(-total // block) if lines is None else 1)](
            parts,
            lines,
            tasks,
            begin.contiguous() if isinstance(begin, Tensor) else None,
            None if origin is None else origin.contiguous(),
            out,
            sums,
            *first,
            h,
            w,
            *out.shape[1:3],
            *((0, 0) if lines is None else lines.shape[1:3]),
            *(parts.stride(k) for k in (0, 1, 2, 5)),
            *(high, wide, *stride, *dilation, channels, block),
            num_warps=max(1, min(4, block // 64)),
        )


@_jit("top", "left", "h", "w", "high", "wide", "tall", "broad", "by_row", "by_y", "by_x", "by_c")
def _lay_form(
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
