"""A batch of facts as bytes: one blob of narrow columns, one of changes, and the positions of its rows in the cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sigmazero.store.facts import COLUMNS, KINDS, Facts, Integers
from sigmazero.store.pack import Array, pack, pack_indices, unpack, unpack_indices


class Packed(NamedTuple):
    """Names of the columns, the columns, and the changes (None where they were not read)."""

    names: str
    columns: bytes
    changes: bytes | None


def pack_facts(facts: Facts) -> Packed:
    """Names, columns and changes of some facts."""
    columns = pack([getattr(facts, name) for name in COLUMNS])
    changes = pack([*pack_indices(facts.offsets, facts.index), facts.value], compress=True)
    return Packed(" ".join(COLUMNS), columns, changes)


def unpack_facts(batches: Sequence[Packed]) -> Facts:
    """The facts of batches, one after the other; where changes were not read, every row seems unchanged."""
    if not batches:
        return Facts.empty()
    parts = [_columns(batch) for batch in batches]
    columns: dict[str, Any] = {
        name: np.concatenate([part[name] for part in parts], dtype=KINDS[name], casting="unsafe") for name in COLUMNS
    }
    if batches[0].changes is None:
        nothing: dict[str, Any] = {"index": np.zeros(0, np.int64), "value": np.zeros(0, np.float32)}
        return Facts(**columns, offsets=np.zeros(len(columns["row"]) + 1, np.int64), **nothing)
    changes = [unpack(batch.changes or b"") for batch in batches]
    pairs = [unpack_indices(lengths.astype(np.int64), steps.astype(np.int64)) for lengths, steps, _ in changes]
    lengths = np.concatenate([np.diff(offsets) for offsets, _ in pairs])
    kind = np.float64 if any(value.dtype == np.float64 for *_, value in changes) else np.float32
    return Facts(
        **columns,
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        index=np.concatenate([index for _, index in pairs]),
        value=np.concatenate([value for *_, value in changes], dtype=kind, casting="unsafe"),
    )


def _columns(batch: Packed) -> dict[str, Array]:
    """A batch's columns by name."""
    names, arrays = batch.names.split(), unpack(batch.columns)
    if len(names) != len(arrays):
        raise ValueError(f"{len(arrays)} columns are stored for {len(names)} names; the store is damaged")
    found = dict(zip(names, arrays, strict=True))
    if lacking := [name for name in COLUMNS if name not in found]:
        raise ValueError(f"a batch lacks the column {lacking[0]}; the store is damaged")
    return found


def pack_places(positions: int | Sequence[int] | NDArray[Any], count: int) -> tuple[Integers, bytes | None]:
    """Rising positions of `count` rows, given as such or as the first of a run; as bytes if they have gaps."""
    if isinstance(positions, int | np.integer):
        return np.arange(positions, positions + count), None
    places = np.asarray(positions)
    if places.dtype.kind not in "iu" or places.shape != (count,):
        raise ValueError(f"facts of {count} rows need as many positions, or the first one; got {positions!r}")
    places = places.astype(np.int64)
    steps = np.diff(places)
    if (steps < 1).any():
        raise ValueError(f"positions must rise: {places[:-1][steps < 1][0]} is followed by {places[1:][steps < 1][0]}")
    return places, None if (steps == 1).all() else pack([steps])


def unpack_places(start: int, stop: int, places: bytes | None) -> Integers:
    """The positions of a batch."""
    if places is None:
        return np.arange(start, stop)
    (steps,) = unpack(places)
    return np.concatenate([[start], start + np.cumsum(steps, dtype=np.int64)])
