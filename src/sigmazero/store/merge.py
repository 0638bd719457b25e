"""Several stores as one: every row that one of them has, with the provenance of the run that made it.

What comes out does not depend on the order of the stores, nor on how often or in what steps they are merged. For that
each choice between two equal things goes by their content: of two runs with the same facts of a row, the one whose
provenance comes first in the alphabet. Facts that differ are not chosen from but refused.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np

from sigmazero.core.files import same_file, writable
from sigmazero.store import database
from sigmazero.store.answers import same_answers
from sigmazero.store.batches import pack_facts, pack_places, unpack_facts, unpack_places
from sigmazero.store.checksums import blob_sum, put
from sigmazero.store.database import StoreBusy, StoreError
from sigmazero.store.facts import CellInfo
from sigmazero.store.fresh import fresh
from sigmazero.store.log import beside
from sigmazero.store.overlap import Contradiction, Made, Piece, united
from sigmazero.store.reading import BatchRow, CellRow, Reader
from sigmazero.store.store import Store


class OtherPlan(StoreError):
    """Stores of different plans are to be merged."""


@dataclass
class Merged:
    """What a merged store has: cells, rows, and how many rows of these cells are still to be run."""

    cells: int = 0
    rows: int = 0
    lacking: int = 0


def merge(paths: Sequence[Path], new: Path, *, any_plan: bool = False) -> Merged:
    """Write what some stores have to one; what it has already, if it exists, stays in it. It is written whole or not.

    any_plan   also stores that were filled by different plans
    """
    if both := next((path for path in paths if same_file(path, new)), None):
        raise StoreError(f"{both} is to be read and to be written; name another file for what is merged")
    writable(new)
    with _alone(new), ExitStack() as opened:
        held = [new] if new.exists() else []
        stores = [opened.enter_context(Store(path)) for path in (*paths, *held)]
        for store in stores:
            _refuse_unfit(store, busy=store.path != new)
        if not any_plan:
            _refuse_other_plans(stores)
        done = Merged()
        with fresh(new, "merged") as base:
            _write(base, stores, done)
            whole = Reader(new, base)
            for key in whole.cell_keys():
                whole.proved(key)  # a point of one store may be below what another has a proof of
    return done


@contextmanager
def _alone(new: Path) -> Iterator[None]:
    """Nobody else writes to the new store meanwhile; one that is there is closed in order first."""
    if new.exists():
        Store(new, write=True).close()
        if beside(new).exists():
            raise StoreBusy(f"{new} is being read by another process; wait for it to end")
    lock = database.WriterLock(new, 0.0)
    try:
        yield
    finally:
        lock.close()


def _refuse_unfit(store: Store, busy: bool) -> None:
    """Refuse a store that is being filled, and one that is not as it was written: a copy would look sound."""
    if busy and (who := store.writer()):
        raise StoreBusy(f"{store.path} is being written by {who}; wait for it to end")
    if flaws := store.audit():
        raise StoreError(f"{store.path}: {flaws[0].what}; restore a copy, or repair it")


def _refuse_other_plans(stores: Sequence[Store]) -> None:
    """Refuse stores without a plan in common; those that do not say fit all."""
    known = [(store, plans) for store in stores if (plans := _plans(store))]
    if not known or set.intersection(*(set(plans) for _, plans in known)):
        return
    (one, first), *others = known
    other, second = next((pair for pair in others if not set(first) & set(pair[1])), others[-1])
    names = [" and ".join(f"{name} ({key[:8]})" for key, name in sorted(p.items())) for p in (first, second)]
    raise OtherPlan(
        f"{one.path} was filled by the plan {names[0]} and {other.path} by {names[1]}; merge the parts of one plan, "
        "or say that any will do"
    )


def _plans(store: Store) -> dict[str, str]:
    """The plans that filled a store: their names by their hashes."""
    made = [json.loads(text) for _, text in store._rows("runs", None)]
    return {one["plan_sha256"]: str(one.get("plan")) for one in made if "plan_sha256" in one}


def _write(base: sqlite3.Connection, stores: Sequence[Store], done: Merged) -> None:
    texts = sorted({text for store in stores for _, text in store._rows("runs", None)})
    runs = {text: number for number, text in enumerate(texts, 1)}
    for text, number in runs.items():
        put(base, "runs", None, number, text)
    holders: dict[str, list[Store]] = {}
    for store in stores:
        for key in store.cell_keys():
            holders.setdefault(key, []).append(store)
    cells = sorted((_described(held, key) for key, held in holders.items()), key=_order)
    for number, info in enumerate(cells, 1):
        _write_cell(base, holders[info.key], number, info, runs, done)
    for hashed in sorted({name for store in stores for (name,) in store._ask("SELECT hash FROM inputs")}):
        put(base, "inputs", None, hashed, min(rows for store in stores if (rows := store.inputs(hashed)) is not None))
    _write_proofs(base, stores)


def _write_proofs(base: sqlite3.Connection, stores: Sequence[Store]) -> None:
    """Every proof: of two about one row the one that says more, and of equals always the same."""
    digests = {row for store in stores for row in store._rows("digests", None)}
    for data_hash, packed in sorted(digests):
        put(base, "digests", None, data_hash, packed)
    best: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in (row for store in stores for row in store._rows("proofs", None)):
        about, found = tuple(row[:5]), (-row[5], *row[6:])
        best[about] = min(best.get(about, found), found)
    for about, (least, *rest) in sorted(best.items()):
        put(base, "proofs", None, *about, -least, *rest)


def _described(stores: Sequence[Store], key: str) -> CellInfo:
    """What a cell asks. Names may differ from store to store, what they stand for may not."""
    found = [store.cell(key) for store in stores]
    if len({info.rows for info in found}) > 1:
        raise StoreError(f"cell {key[:12]} has {' and '.join(str(info.rows) for info in found)} rows in these stores")
    return min(found, key=CellInfo.text)


def _order(info: CellInfo) -> tuple[str, str, str, int, str]:
    return info.dataset, info.model, info.attack, -1 if info.budget is None else info.budget, info.key


def _write_cell(
    base: sqlite3.Connection, stores: Sequence[Store], number: int, info: CellInfo, runs: dict[str, int], done: Merged
) -> None:
    """All that these stores know of a cell."""
    pieces = [piece for place, store in enumerate(stores) for piece in _pieces(store, place, info.key)]
    try:
        batches = united(pieces)
    except Contradiction as wrong:
        one, other = (stores[place].path for place in wrong.stores)
        raise StoreError(
            f"{info.attack} against {info.model} on {info.dataset} [{info.key[:12]}]: {wrong.what} of row {wrong.row} "
            f"is another in {one} than in {other}; leave one of them out, or run that cell into a new store"
        ) from None
    places = np.concatenate([np.zeros(0, np.int64), *(batch.places for batch in batches)])
    stored, rows = len(places), [store._cell(info.key) for store in stores]
    cell = CellRow(number, info.key, info.text(), stored)
    put(base, "cells", None, *cell)
    for batch in batches:
        _write_batch(base, cell, batch, runs)
    _refuse_other_answers(stores, info.key)
    held = [(store, row.id) for store, row in zip(stores, rows, strict=True)]
    _write_others(base, held, cell)
    _write_failures(base, held, cell, set(places.tolist()))
    done.cells += 1
    done.rows += stored
    done.lacking += info.rows - stored


def _pieces(store: Store, place: int, key: str) -> Iterator[Piece]:
    """The batches of a cell in one store."""
    runs = dict(store._rows("runs", None))
    for row in store._batches(store._cell(key)):
        blobs = store._ask("SELECT columns, changes FROM facts WHERE batch = ?", row.id)
        facts = unpack_facts([store._packed(key, row, blobs[0] if blobs else None)])
        made = Made(runs.get(row.run, "{}"), row.peak_device, row.peak_process)
        yield Piece(unpack_places(row.start, row.stop, row.places), facts, made, place)


def _write_batch(base: sqlite3.Connection, cell: CellRow, batch: Piece, runs: dict[str, int]) -> None:
    places, packed = pack_places(batch.places, len(batch.facts))
    names, columns, changes = pack_facts(batch.facts)
    assert changes is not None  # as facts always have them
    row = BatchRow(
        id=base.execute("SELECT coalesce(max(id), 0) + 1 FROM batches").fetchone()[0],
        cell=cell.id,
        start=int(places[0]),
        stop=int(places[-1]) + 1,
        size=len(places),
        places=packed,
        run=runs[batch.made.provenance],
        seconds=fsum(batch.facts.seconds),  # whatever part of the batch it is
        peak_device=batch.made.peak_device,
        peak_process=batch.made.peak_process,
        names=names,
        columns_sum=blob_sum(columns),
        changes_sum=blob_sum(changes),
    )
    put(base, "batches", cell.key, *row)
    base.execute("INSERT INTO facts VALUES (?, ?, ?)", (row.id, columns, changes))


def _write_others(base: sqlite3.Connection, stores: Sequence[tuple[Store, int]], cell: CellRow) -> None:
    """Traces, what the doctor found, and the answers that the model is recognised by."""
    for table in ("traces", "doctor", "answers"):
        found: dict[tuple[int, ...], list[bytes | str]] = {}
        for store, number in stores:
            for _, *place, value in store._rows(table, cell.key, "WHERE cell = ?", number):
                found.setdefault(tuple(place), []).append(value)
        for where, values in sorted(found.items()):
            # A finding outlives none: "[]" comes first. Of the others any will do, if it is always the same.
            put(base, table, cell.key, cell.id, *where, max(values) if table == "doctor" else min(values))


def _write_failures(
    base: sqlite3.Connection, stores: Sequence[tuple[Store, int]], cell: CellRow, done: set[int]
) -> None:
    """Why rows failed, unless all of them were done elsewhere; of two failures that begin alike the longer one."""
    known: dict[int, tuple[Any, ...]] = {}
    for store, number in stores:
        for _, start, *rest in store._rows("failures", cell.key, "WHERE cell = ?", number):
            known[start] = max(known.get(start, ()), tuple(rest))
    for start, (stop, *rest) in sorted(known.items()):
        if not done.issuperset(range(start, stop)):
            put(base, "failures", cell.key, cell.id, start, stop, *rest)


def _refuse_other_answers(stores: Sequence[Store], key: str) -> None:
    """Refuse facts of models that answer otherwise, though their weights and their code are the same."""
    kept = [(store, logits) for store in stores if (logits := store.answers(key)) is not None]
    for store, logits in kept[1:]:
        if not same_answers(kept[0][1], logits):
            raise StoreError(
                f"cell {key[:12]}: the model of {store.path} answers otherwise than that of {kept[0][0].path}, though "
                "weights and code are the same; leave one of them out"
            )
