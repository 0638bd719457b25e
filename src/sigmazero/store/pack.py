"""Arrays as few bytes: each in the narrowest type that holds it exactly, a constant one as a single value."""

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# The place in this list is what a blob stores: append only.
_TYPES = [np.dtype(t) for t in ("|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<f2", "<f4", "<f8")]
_INTEGERS, _FLOATS = _TYPES[:7], _TYPES[7:]
_CONSTANT = 0x80
_RAW, _DEFLATED = b"\x00", b"\x01"


def pack(arrays: Sequence[Array], *, compress: bool = False) -> bytes:
    """One-dimensional arrays of integers or floats as bytes; `unpack` gives the same values."""
    pieces = []
    for array in arrays:
        length = len(array)
        # Compared as bits, so that a NaN counts as itself.
        constant = length > 1 and bool((_bits(array) == _bits(array[:1])).all())
        narrow = _narrow(array[:1] if constant else array)
        pieces += [struct.pack("<BI", _TYPES.index(narrow.dtype) | constant * _CONSTANT, length), narrow.tobytes()]
    payload = b"".join(pieces)
    return _DEFLATED + zlib.compress(payload, 1) if compress else _RAW + payload


def unpack(blob: bytes) -> list[Array]:
    """The arrays of a blob, in their narrow types (convert before computing); constants are views of one value."""
    try:
        payload = zlib.decompress(blob[1:]) if blob[:1] == _DEFLATED else blob[1:]
        arrays, at = [], 0
        while at < len(payload):
            code, length = struct.unpack_from("<BI", payload, at)
            kind, held = _TYPES[code & ~_CONSTANT], 1 if code & _CONSTANT else length
            found = np.frombuffer(payload, kind, held, at + 5)
            arrays.append(np.broadcast_to(found, length) if code & _CONSTANT else found)
            at += 5 + held * kind.itemsize
    except (zlib.error, struct.error, IndexError, ValueError) as error:
        raise ValueError(f"a packed column cannot be read ({error}); the store is damaged") from error
    return arrays


def _bits(array: Array) -> Array:
    return array.view(f"i{array.dtype.itemsize}") if array.dtype.kind == "f" else array


def _narrow(array: Array) -> Array:
    if array.dtype.kind in "iu":
        low, high = (int(array.min()), int(array.max())) if len(array) else (0, 0)
        return array.astype(next(t for t in _INTEGERS if np.iinfo(t).min <= low and high <= np.iinfo(t).max))
    if array.dtype.kind != "f":
        raise TypeError(f"only integers and floats can be packed, not {array.dtype}")
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for kind in _FLOATS:
            narrow = array.astype(kind)
            if kind.itemsize >= array.dtype.itemsize or (_bits(narrow.astype(array.dtype)) == _bits(array)).all():
                return narrow
    raise TypeError(f"floats of {array.dtype} are wider than 64 bits")


def pack_indices(offsets: Array, index: Array) -> list[Array]:
    """Rising numbers per row as row lengths and steps from one to the next: small numbers pack well."""
    steps = np.diff(index, prepend=index.dtype.type(0))
    starts = offsets[:-1][np.diff(offsets) > 0]
    steps[starts] = index[starts]
    return [np.diff(offsets), steps]


def unpack_indices(lengths: Array, steps: Array) -> tuple[Array, Array]:
    """Offsets and numbers again."""
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    total = np.cumsum(steps, dtype=np.int64)
    starts = offsets[:-1][lengths > 0]
    before = total[starts] - steps[starts]
    return offsets, total - np.repeat(before, lengths[lengths > 0])
