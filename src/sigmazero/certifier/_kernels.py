"""Steps back through a network as kernels, each of which reads and writes every number once.

The definitions are those in tensor operations: `Windows.forms`, `backward.bent` and `Groups.least`. Sums are taken in
another order, so that answers agree up to rounding, of which ADR 23 speaks for any order. Triton comes with CUDA builds
of torch; without it `supports` says no.
"""

import functools
import logging

import torch
from torch import Tensor

from sigmazero.certifier._programs import best_form, lay_form
from sigmazero.certifier._tritons import triton
from sigmazero.certifier.layers import Pair

log = logging.getLogger(__name__)
_MOST_TAPS = 64  # numbers that are summed for one; each is a piece of code of its own
_MOST_GROUPS = 16
_MOST_CHANNELS = 64


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
        lay_form[(rows, -(-total // block) if lines is None else 1)](
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


def groups(count: int, channels: int) -> bool:
    """Whether the best sites of so many groups can be found by a kernel."""
    return 0 < count <= _MOST_GROUPS and channels <= _MOST_CHANNELS


def best_listed(
    a: Tensor, tasks: Tensor, sites: Tensor, ends: tuple[Tensor, Tensor], rank: Tensor, rounds: int
) -> Tensor:
    """The sum of the best gains of forms over a whole input.

    `sites` is (tasks, groups * places), the ends are (tasks, groups * places, features of a site). `rank` (tasks,
    groups) says how many groups before are the same: it takes the best gain that is left by them. `rounds` is the
    largest rank and 1.
    """
    count = rank.shape[1]
    listed = (sites.contiguous(), *(t.contiguous() for t in ends))
    return _best(a, tasks, None, listed, None, (rank, rank), rounds, sites.shape[1] // count, ends[0].shape[2], True)


def best_seen(
    a: Tensor,
    tasks: Tensor,
    origin: Tensor,
    ringed: Tensor,
    ranks: tuple[Tensor, Tensor],
    rounds: int,
    channels: int,
    pixels: bool,
) -> Tensor:
    """The same for forms in windows. `ringed` has the ends of features and the groups of sites, side by side.

    `ranks` are for each group the first that is the same, and its rank.
    """
    places = a.shape[1] * a.shape[2] * (1 if pixels else channels)
    none = (None, None, None)
    return _best(a, tasks, origin.contiguous(), none, ringed.contiguous(), ranks, rounds, places, channels, pixels)


def _best(
    a: Tensor,
    tasks: Tensor,
    origin: Tensor | None,
    listed: tuple[Tensor | None, ...],
    ringed: Tensor | None,
    ranks: tuple[Tensor, Tensor],
    rounds: int,
    places: int,
    channels: int,
    pixels: bool,
) -> Tensor:
    out = a.new_zeros(len(a))
    if not a.numel() or not places:
        return out
    count = ranks[0].shape[1]
    wide = triton.next_power_of_2(count)
    block = max(16, min(1024 // wide, triton.next_power_of_2(places)))
    with torch.cuda.device_of(a):  # type: ignore[no-untyped-call]  # launches go to the current device
        best_form[(len(a),)](
            a.contiguous(),
            tasks.contiguous(),
            origin,
            *listed,
            ringed,
            *(t.contiguous() for t in ranks),
            out,
            count,
            places,
            rounds,
            a[0].numel(),
            a.shape[2],
            *((0, 0) if ringed is None else ringed.shape[1:3]),
            *(channels, pixels, wide, block, rounds > 1),
            num_warps=max(1, min(4, wide * block // 128)),
        )
    return out
