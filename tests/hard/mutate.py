"""Good files made bad: one seed, one file. What is changed is what accidents and enemies change."""

import random
from collections.abc import Callable

EXTREMES = [
    value.to_bytes(size, order)
    for size in (1, 2, 4, 8)
    for order in ("little", "big")
    for value in (0, 1, 2 ** (8 * size) - 1, 2 ** (8 * size - 1), 2 ** (8 * size - 1) - 1, 2 ** (8 * size) - 8)
]
WORDS = [b"999999999999", b"-1", b"[", b"{", b"(", b'"', b"\n", b".", b"\x80", b"\x85", b"nan", b"1e999", b"\\u0000"]


def mutate(data: bytes, dice: random.Random) -> bytes:
    """The same file with one to four changes."""
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        dice.choice(CHANGES)(changed, dice)
    return bytes(changed)


def _piece(data: bytearray, dice: random.Random) -> tuple[int, int]:
    start = dice.randrange(len(data) + 1)
    return start, min(len(data), start + dice.choice((1, 2, 4, 8, 30, 200, len(data))))


def _flip(data: bytearray, dice: random.Random) -> None:
    for _ in range(min(len(data), dice.choice((1, 1, 2, 8)))):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _cut(data: bytearray, dice: random.Random) -> None:
    del data[dice.randrange(len(data) + 1) :]


def _remove(data: bytearray, dice: random.Random) -> None:
    start, stop = _piece(data, dice)
    del data[start:stop]


def _double(data: bytearray, dice: random.Random) -> None:
    start, stop = _piece(data, dice)
    data[start:start] = data[start:stop] * dice.choice((1, 1, 2, 50 if stop - start < 200 else 1))


def _swap(data: bytearray, dice: random.Random) -> None:
    (a, b), (c, d) = sorted((_piece(data, dice), _piece(data, dice)))
    if b <= c:
        data[a:d] = data[c:d] + data[b:c] + data[a:b]


def _extreme(data: bytearray, dice: random.Random) -> None:
    start = dice.randrange(len(data) + 1)
    value = dice.choice(EXTREMES)
    data[start : start + len(value)] = value


def _insert(data: bytearray, dice: random.Random) -> None:
    start = dice.randrange(len(data) + 1)
    data[start:start] = (
        dice.choice(WORDS) * dice.choice((1, 1, 3, 2000))
        if dice.random() < 0.5
        else dice.randbytes(dice.choice((1, 2, 7, 100)))
    )


def _fill(data: bytearray, dice: random.Random) -> None:
    start, stop = _piece(data, dice)
    data[start:stop] = bytes([dice.choice((0, 32, 48, 65, 127, 128, 255))]) * (stop - start)


CHANGES: list[Callable[[bytearray, random.Random], None]] = [
    _flip, _flip, _cut, _remove, _double, _swap, _extreme, _extreme, _insert, _fill,
]  # fmt: skip
