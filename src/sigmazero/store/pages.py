"""Rows of an SQLite file, found page by page: neither the schema nor the tree above them need be whole.

SQLite itself gives up on a table once a page above its rows is damaged. The pages that hold rows say so themselves, and
each can be read alone. The format is that of SQLite's documentation, "Database File Format".
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sigmazero.store.log import PREFIX, Log, read_log

USUAL = 4096  # bytes of a page, where the file does not say
_LEAF = 0x0D  # the first byte of a page of rows
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # bytes of each kind of whole number
_DAMAGED = (IndexError, ValueError, struct.error, OverflowError)


def views(path: Path) -> list[tuple[bytearray, int]]:
    """The content of a file and the size of its pages: with the log beside it, if there is one, and without."""
    raw, log = bytearray(path.read_bytes()), read_log(path)
    size = struct.unpack_from(">H", raw, 16)[0] if len(raw) >= PREFIX else 0
    size = 65536 if size == 1 else size
    size = size if size >= 512 and size & (size - 1) == 0 else USUAL
    return [(raw, size)] if log is None else [(_applied(raw, log), log.page_size), (raw, size)]


def _applied(raw: bytearray, log: Log) -> bytearray:
    whole = raw.ljust(log.length * log.page_size, b"\0")
    for number, content in log.pages:
        whole[(number - 1) * log.page_size : number * log.page_size] = content
    return whole


def rows(raw: bytearray, size: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """The number and the values of every row that can be read; whether they are right only a checksum can tell."""
    for start in range(0, len(raw), size):
        head = start + (PREFIX if start == 0 else 0)
        if head + 8 > len(raw) or raw[head] != _LEAF:
            continue
        (count,) = struct.unpack_from(">H", raw, head + 3)
        for place in range(head + 8, min(head + 8 + 2 * count, start + size - 1, len(raw) - 1), 2):
            try:
                yield _row(raw, size, start + struct.unpack_from(">H", raw, place)[0])
            except _DAMAGED:
                continue


def _row(raw: bytearray, size: int, at: int) -> tuple[int, tuple[Any, ...]]:
    length, at = _number(raw, at)
    row, at = _number(raw, at)
    return row, _values(_payload(raw, size, at, length))


def _number(raw: bytearray | bytes, at: int) -> tuple[int, int]:
    """A whole number of one to nine bytes, and where it ends."""
    value = 0
    for step in range(8):
        value = value << 7 | raw[at + step] & 0x7F
        if raw[at + step] < 0x80:
            return value, at + step + 1
    return value << 8 | raw[at + 8], at + 9


def _payload(raw: bytearray, size: int, at: int, length: int) -> bytes:
    """The bytes of a row, which may go on in other pages."""
    if length > len(raw):
        raise ValueError("a row is longer than the file")
    if length <= size - 35:
        return bytes(raw[at : at + length])
    least = (size - 12) * 32 // 255 - 23
    here = least + (length - least) % (size - 4)
    here = here if here <= size - 35 else least
    found = bytearray(raw[at : at + here])
    (page,) = struct.unpack_from(">I", raw, at + here)
    while len(found) < length:
        start = (page - 1) * size
        if page < 1 or start + size > len(raw):
            raise ValueError("a row goes on in a page that is not there")
        (page,) = struct.unpack_from(">I", raw, start)
        found += raw[start + 4 : start + size]
    return bytes(found[:length])


def _values(payload: bytes) -> tuple[Any, ...]:
    end, at = _number(payload, 0)
    place, found = end, []
    while at < end:
        kind, at = _number(payload, at)
        value, place = _value(payload, kind, place)
        found.append(value)
    if place != len(payload):
        raise ValueError("a row has other values than it says")
    return tuple(found)


def _value(payload: bytes, kind: int, at: int) -> tuple[Any, int]:
    """A value of some kind, and where it ends."""
    if kind in (0, 8, 9):
        return (None, at) if kind == 0 else (kind - 8, at)
    if kind == 7:
        return struct.unpack_from(">d", payload, at)[0], at + 8
    end = at + (_INTEGERS[kind] if kind in _INTEGERS else (kind - 12) // 2)
    if kind in (10, 11) or end > len(payload):
        raise ValueError("a value goes beyond its row")
    part = payload[at:end]
    if kind in _INTEGERS:
        return int.from_bytes(part, "big", signed=True), end
    return (part if kind % 2 == 0 else part.decode(errors="surrogateescape")), end
