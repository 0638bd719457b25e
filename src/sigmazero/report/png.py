"""Small pictures as PNG, without a library."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_KINDS = {1: 0, 3: 2}  # channels to colour types


def png(pixels: NDArray[np.uint8]) -> bytes:
    """A picture (height, width, 1 or 3 channels) of bytes.

    >>> png(np.zeros((2, 3, 1), np.uint8))[1:4]
    b'PNG'
    """
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _KINDS[channels], 0, 0, 0)
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)  # 0: no filter
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(name, content) for name, content in chunks)


def data_uri(pixels: Any) -> str:
    """A picture as an address that has it inside."""
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
