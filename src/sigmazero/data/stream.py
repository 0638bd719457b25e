"""Rows out of an array that comes as a stream: only those asked for are kept, and the rest passes by."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from sigmazero.data.source import Array

PIECE = 1 << 24
PACKED = 1032  # bytes that one byte of zlib stands for at most


class Uneven(ValueError):
    """A stream that is longer or shorter than its header promises."""


def pick(
    stream: IO[bytes],
    shape: tuple[int, ...],
    kind: np.dtype[Any],
    rows: list[int],
    look: Callable[[Array, int], None] | None = None,
) -> Array:
    """These rows of an array, in this order. The stream is read to its end, so that its checksum is compared too.

    look   called with each piece and the number of its first row
    """
    wanted = np.array(rows, dtype=np.int64)
    chosen = np.empty((len(rows), *shape[1:]), kind)
    row = math.prod(shape[1:]) * kind.itemsize
    step = max(1, PIECE // max(row, 1))
    for first in range(0, shape[0] if row else 0, step):
        count = min(step, shape[0] - first)
        data = _read(stream, count * row)
        if len(data) < count * row:
            raise Uneven(f"promises {shape[0] * row} bytes for shape {shape} but holds {first * row + len(data)}")
        piece = np.frombuffer(data, kind).reshape(count, *shape[1:])
        if look:
            look(piece, first)
        here = np.flatnonzero((wanted >= first) & (wanted < first + count))
        chosen[here] = piece[wanted[here] - first]
    if stream.read(1):
        raise Uneven(f"promises {shape[0] * row} bytes for shape {shape} but holds more")
    return chosen


def _read(stream: IO[bytes], size: int) -> bytearray:
    """So many bytes, or all there are. A reader that is asked for much takes the memory before it looks for it."""
    data = bytearray()
    while len(data) < size and (part := stream.read(min(size - len(data), PIECE))):
        data += part
    return data


def refuse_promise(promised: int, held: int, packed: bool) -> None:
    """Raise when a file of `held` bytes cannot hold what it promises, packed as tightly as zlib can."""
    if promised > held * (PACKED if packed else 1):
        raise Uneven(f"promises {promised} bytes but holds {held}" + " packed ones" * packed)
