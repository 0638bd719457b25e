"""The encoding of ONNX files (protocol buffers), as far as it is needed: numbered fields of numbers and bytes.

Nothing is made that is larger than the file, and no field leads to code.
"""

import struct
from collections.abc import Iterator

Value = int | bytes
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # the ways in which a field is written


class Malformed(ValueError):
    """The bytes are no message."""


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Number and value of each field: a whole number, or bytes (a text, a message, packed numbers, or one number).

    >>> list(fields(bytes([0x08, 0x96, 0x01, 0x12, 0x02, 0x68, 0x69])))
    [(1, 150), (2, b'hi')]
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, way = tag >> 3, tag & 7
        if way == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if way == _BYTES:
            length, at = _varint(data, at)
        elif way in (_EIGHT, _FOUR):
            length = 8 if way == _EIGHT else 4
        else:
            raise Malformed(f"a field is written in way {way}, which there is not")
        if at + length > len(data):
            raise Malformed(f"a field of {length} bytes does not fit into the {len(data) - at} that are left")
        yield number, data[at : at + length]
        at += length


def collected(data: bytes) -> dict[int, list[Value]]:
    """The values of a message by number; a field may come several times."""
    found: dict[int, list[Value]] = {}
    for number, value in fields(data):
        found.setdefault(number, []).append(value)
    return found


def integers(values: list[Value]) -> list[int]:
    """Whole numbers, one by one or packed together; the largest stand for negative ones."""
    found: list[int] = []
    for value in values:
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            found.append(number)
    return [number - (1 << 64) if number >= 1 << 63 else number for number in found]


def floats(values: list[Value], kind: str = "f") -> list[float]:
    """Numbers of four bytes ("f") or eight ("d"), one by one or packed together."""
    data = b"".join(messages(values))
    size = struct.calcsize(kind)
    if len(data) % size:
        raise Malformed(f"{len(data)} bytes are no whole number of values")
    return list(struct.unpack(f"<{len(data) // size}{kind}", data))


def messages(values: list[Value]) -> list[bytes]:
    """Values that must be bytes."""
    if not all(isinstance(value, bytes) for value in values):
        raise Malformed("a number stands where a message is expected")
    return [value for value in values if isinstance(value, bytes)]


def text(values: list[Value]) -> str:
    """The last of some texts; an empty one if there is none."""
    try:
        return messages(values)[-1].decode() if values else ""
    except UnicodeDecodeError as error:
        raise Malformed("a name is no text") from error


def number(values: list[Value], otherwise: int = 0) -> int:
    """The last of some whole numbers."""
    found = integers(values)
    return found[-1] if found else otherwise


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise Malformed("the bytes end in the middle of a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value & ((1 << 64) - 1), at
    raise Malformed("a number has more than ten bytes")
