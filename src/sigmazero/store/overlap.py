"""The same rows in several batches: taken once if all agree, and refused if they do not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sigmazero.store.facts import COLUMNS, Facts, Integers


class Made(NamedTuple):
    """What is known of a batch besides its facts: how it was made, and the memory it took."""

    provenance: str
    peak_device: int | None
    peak_process: int | None


@dataclass(frozen=True)
class Piece:
    """Rows of a cell, at rising places, and in which of several stores they are."""

    places: Integers
    facts: Facts
    made: Made
    store: int


class Contradiction(Exception):
    """Two stores differ in what they say of a row."""

    def __init__(self, what: str, row: int, stores: tuple[int, int]) -> None:
        super().__init__(what)
        self.what, self.row, self.stores = what, row, stores


def united(pieces: Sequence[Piece]) -> list[Piece]:
    """Every row once, in batches as they were made; the same for any order, and for pieces that were united before.

    Of two batches with the same row the row goes to that whose way of making comes first, then to the faster one. The
    rows that a batch keeps are recognised by their seconds, of which all rows of a batch have the same share: so parts
    of a batch that come from different stores are one again.
    """
    if not pieces:
        return []
    ways = sorted({piece.made for piece in pieces}, key=_rank)
    facts = Facts.join([piece.facts for piece in pieces])
    place = np.concatenate([piece.places for piece in pieces])
    way = np.repeat([ways.index(piece.made) for piece in pieces], [len(piece.places) for piece in pieces])
    store = np.repeat([piece.store for piece in pieces], [len(piece.places) for piece in pieces])
    order = np.lexsort((facts.seconds, way, place))
    again = np.concatenate([[False], np.diff(place[order]) == 0])
    _refuse_contradictions(facts, order[np.flatnonzero(again) - 1], order[again], store)
    groups: dict[tuple[int, float], list[int]] = {}
    for one in order[~again].tolist():
        groups.setdefault((int(way[one]), float(facts.seconds[one])), []).append(one)
    chosen = [(ways[number], np.array(rows)) for (number, _), rows in groups.items()]
    return [
        Piece(place[rows], facts.take(rows), made, 0) for made, rows in sorted(chosen, key=lambda c: place[c[1][0]])
    ]


def _rank(made: Made) -> tuple[str, int, int]:
    device, process = (-1 if peak is None else peak for peak in made[1:])
    return made.provenance, device, process


def _refuse_contradictions(facts: Facts, one: Integers, other: Integers, store: Integers) -> None:
    """Compare what two places say of one row, but for the time it took."""
    wrong: dict[str, NDArray[np.bool_]] = {}
    for name in COLUMNS:
        if name != "seconds":
            left, right = getattr(facts, name)[one], getattr(facts, name)[other]
            wrong[name] = (left != right) & ~((left != left) & (right != right))  # NaN is as NaN
    wrong["the changes"] = np.array(
        [not _same_changes(facts, *pair) for pair in zip(one, other, strict=True)], np.bool_
    )
    for what, differs in wrong.items():
        if differs.any():
            first = int(np.flatnonzero(differs)[0])
            a, b = one[first], other[first]
            raise Contradiction(what, int(facts.row[a]), (int(min(store[a], store[b])), int(max(store[a], store[b]))))


def _same_changes(facts: Facts, one: int, other: int) -> bool:
    left, right = (slice(facts.offsets[row], facts.offsets[row + 1]) for row in (one, other))
    return np.array_equal(facts.index[left], facts.index[right]) and np.array_equal(
        facts.value[left], facts.value[right], equal_nan=True
    )
