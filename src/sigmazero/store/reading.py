"""Reading a store: every value that is handed out was checked against its checksum."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sigmazero.store import checksums, database
from sigmazero.store.batches import Packed, unpack_facts, unpack_places
from sigmazero.store.checksums import Flaw
from sigmazero.store.database import StoreError
from sigmazero.store.facts import CellInfo, Facts, Integers
from sigmazero.store.pack import unpack
from sigmazero.store.proofs import Proof, ProofKey, contradictions, unpack_digests
from sigmazero.store.trace import Trace

Stage = Literal["done", "running", "begun", "waiting", "failed"]


@dataclass(frozen=True)
class CellStatus:
    """How far a cell is; `seconds` is what its stored rows took."""

    cell: CellInfo
    done: int
    seconds: float
    error: str | None
    state: Stage


@dataclass(frozen=True)
class Failure:
    """Rows of a cell, from `start` up to `stop`, that could not be run, how often that was tried, and why not."""

    key: str
    start: int
    stop: int
    tries: int
    error: str


class CellRow(NamedTuple):
    """A cell as its table has it; `stored` counts the rows with facts."""

    id: int
    key: str
    info: str
    stored: int


class BatchRow(NamedTuple):
    """A batch as its table has it: `size` rows, from `start` up to `stop`, or those in `places`."""

    id: int
    cell: int
    start: int
    stop: int
    size: int
    places: bytes | None
    run: int
    seconds: float
    peak_device: int | None
    peak_process: int | None
    names: str
    columns_sum: bytes
    changes_sum: bytes


class Reader:
    """What can be asked of an open store. A value that is not as it was written is an error that names the place."""

    path: Path
    _base: sqlite3.Connection
    _lock: database.WriterLock | None

    def __init__(self, path: Path, base: sqlite3.Connection) -> None:
        self.path, self._base, self._lock = path, base, None

    def _catch_up(self) -> None:
        """Before anything is read: a writer may hold back what it was given. A reader was given nothing."""

    def _ask(self, question: str, *values: Any) -> list[Any]:
        self._catch_up()
        with database.explained(self.path):
            return self._base.execute(question, values).fetchall()

    def _rows(self, table: str, key: str | None, rest: str = "", *values: Any) -> list[Any]:
        """Rows of a table that belong to the cell with this key, or to none."""
        found = self._ask(f"SELECT {checksums.selected(table)} FROM {table} {rest}", *values)
        for row in found:
            if not checksums.is_whole(table, key, row):
                raise self._altered(f"{checksums.label(table, row)}", key)
        return [row[:-1] for row in found]

    def _altered(self, what: str, key: str | None, why: str = checksums.ALTERED) -> StoreError:
        place = self.path if key is None else f"{self.path}, cell {key[:12]}"
        return StoreError(f"{place}: {what}: {why}; restore a copy of the store, or run into another one")

    def _cell(self, key: str) -> CellRow:
        found = self._rows("cells", None, "WHERE key = ?", key)
        if not found and key in self.cell_keys():  # the index of the table is damaged
            raise self._altered("its list of cells", None, "names a cell that cannot be found")
        if not found:
            raise KeyError(f"{self.path} has no cell {key!r}; its cell_keys() are all there are")
        return CellRow(*found[0])

    def _parse(self, row: CellRow) -> CellInfo:
        try:
            return CellInfo.parse(row.info)
        except (ValueError, TypeError, AttributeError) as error:
            raise self._altered("its description", row.key, f"cannot be read ({error})") from error

    def _batches(self, cell: CellRow) -> list[BatchRow]:
        rows = [BatchRow(*row) for row in self._rows("batches", cell.key, "WHERE cell = ? ORDER BY start", cell.id)]
        if (held := sum(row.size for row in rows)) != cell.stored:
            raise self._altered("its facts", cell.key, f"{cell.stored} rows were stored, there are {held}")
        return rows

    # Cells -----------------------------------------------------------------------------------------------------------

    def cell_keys(self) -> list[str]:
        """The keys of all cells, in the order they were registered."""
        return [key for (key,) in self._ask("SELECT key FROM cells ORDER BY id")]

    def cell(self, key: str) -> CellInfo:
        """What a cell asks, without the provenance of its facts."""
        return self._parse(self._cell(key))

    def cells(self) -> list[CellInfo]:
        """Every cell, in the order they were registered, with the provenance of what is stored of it."""
        made: dict[int, list[tuple[Any, ...]]] = {}
        for cell, *rest in self._ask(
            "SELECT cell, run, sum(seconds), max(peak_device), max(peak_process) FROM batches "
            "GROUP BY cell, run ORDER BY cell, run"
        ):
            made.setdefault(cell, []).append(tuple(rest))
        runs = {run: json.loads(text) for run, text in self._rows("runs", None)}
        if lost := {run for parts in made.values() for run, *_ in parts} - runs.keys():
            raise StoreError(f"{self.path} is a damaged store: it lacks notes on run {lost.pop()!r}. {database.LEFT}")
        rows = [CellRow(*row) for row in self._rows("cells", None, "ORDER BY id")]
        return [replace(self._parse(row), provenance=_provenance(made.get(row.id, []), runs)) for row in rows]

    def status(self) -> list[CellStatus]:
        """How far every cell is; those are running that the process which writes here says it is at."""
        cells = {cell.key: cell for cell in self.cells()}
        rows = self._ask(
            "SELECT key, coalesce(sum(count), 0), coalesce(sum(seconds), 0) "
            "FROM cells LEFT JOIN batches ON batches.cell = cells.id GROUP BY cells.id ORDER BY cells.id"
        )
        wrong = {failure.key: failure.error for failure in self.failures()}
        at_work = set(self.progress().get("cells", ()))

        def stage(key: str, error: str | None, done: int) -> Stage:
            if error is not None:
                return "failed"
            if done >= cells[key].rows:
                return "done"
            return "running" if key in at_work else "begun" if done else "waiting"

        return [
            CellStatus(cells[key], done, seconds, error := wrong.get(key), stage(key, error, done))
            for key, done, seconds in rows
        ]

    def failures(self) -> list[Failure]:
        """Every span of rows that failed when it was last tried, in the order of cells and rows."""
        found: list[Failure] = []
        for cell, key in self._ask("SELECT DISTINCT id, key FROM cells JOIN failures ON cell = id ORDER BY id"):
            rows = self._rows("failures", key, "WHERE cell = ? ORDER BY start", cell)
            found += [Failure(key, *rest) for _, *rest in rows]
        return found

    def progress(self) -> dict[str, Any]:
        """How far the run is that writes here now, as `bench.progress` tells it; nothing where none does."""
        if self._lock is None and not database.is_held(self.path):
            return {}
        found = self._rows("progress", None)
        return dict(json.loads(found[0][1])) if found else {}

    # What is known of a cell's rows ----------------------------------------------------------------------------------

    def stored(self, key: str) -> NDArray[np.bool_]:
        """Which positions of a cell have their facts."""
        cell = self._cell(key)
        done = np.zeros(self._parse(cell).rows, np.bool_)
        for row in self._batches(cell):
            done[unpack_places(row.start, row.stop, row.places)] = True
        return done

    def positions(self, key: str) -> Integers:
        """The positions of the rows whose facts `facts` gives, in the same order."""
        return np.flatnonzero(self.stored(key))

    def facts(self, key: str, perturbations: bool = True) -> Facts:
        """What is stored of a cell, in the order of its rows; without perturbations every row seems unchanged."""
        cell = self._cell(key)
        batches = self._batches(cell)
        blobs: dict[int, tuple[bytes, bytes | None]] = {
            batch: (columns, changes)
            for batch, columns, changes in self._ask(
                f"SELECT batch, columns, {'changes' if perturbations else 'NULL'} FROM batches "
                "JOIN facts ON facts.batch = batches.id WHERE cell = ?",
                cell.id,
            )
        }
        packed = [self._packed(cell.key, row, blobs.get(row.id)) for row in batches]
        try:
            facts = unpack_facts(packed)
        except ValueError as error:
            raise StoreError(f"{self.path}, cell {key[:12]}: {error}") from error
        places = [unpack_places(row.start, row.stop, row.places) for row in batches]
        order = np.concatenate([*places, np.zeros(0, np.int64)])
        if len(order) != len(facts):
            raise self._altered("its facts", key, f"{len(facts)} rows are stored for {len(order)} places")
        return facts if (np.diff(order) > 0).all() else facts.take(np.argsort(order))

    def _packed(self, key: str, row: BatchRow, blobs: tuple[bytes, bytes | None] | None) -> Packed:
        """A batch's blobs, if they are those that were written."""
        if blobs is None:
            raise self._altered(checksums.label("batches", row), key, "missing")
        for blob, wanted in zip(blobs, (row.columns_sum, row.changes_sum), strict=True):
            if blob is not None and (not isinstance(blob, bytes) or checksums.blob_sum(blob) != wanted):
                raise self._altered(checksums.label("batches", row), key)
        return Packed(row.names, *blobs)

    def batches(self, key: str) -> list[tuple[Integers, dict[str, Any]]]:
        """The positions of each batch of a cell, and the provenance of the run that made it."""
        runs = {run: json.loads(text) for run, text in self._rows("runs", None)}
        rows = self._batches(self._cell(key))
        return [(unpack_places(row.start, row.stop, row.places), runs.get(row.run, {})) for row in rows]

    def traced(self, key: str) -> NDArray[np.bool_]:
        """Which positions of a cell have a trace."""
        cell = self._cell(key)
        done = np.zeros(self._parse(cell).rows, np.bool_)
        for (position,) in self._ask("SELECT position FROM traces WHERE cell = ?", cell.id):
            done[position] = True
        return done

    def trace(self, key: str, position: int) -> Trace:
        """What a search asked about the cell's row at a position."""
        cell = self._cell(key)
        found = self._rows("traces", key, "WHERE cell = ? AND position = ?", cell.id, position)
        if not found:
            raise KeyError(
                f"{self.path} has no trace of row {position} of cell {key[:12]}; write trace = true in its plan"
            )
        try:
            return Trace.unpack(found[0][2])
        except ValueError as error:
            raise StoreError(f"{self.path}, cell {key[:12]}: {error}") from error

    def answers(self, key: str) -> Tensor | None:
        """The model's logits for a few clean rows of a cell, in double precision; None where none were kept."""
        found = self._rows("answers", key, "WHERE cell = ?", self._cell(key).id)
        if not found:
            return None
        shape, logits = unpack(found[0][1])
        return torch.from_numpy(logits.astype(np.float64)).view(shape.tolist())

    def findings(self) -> dict[str, list[dict[str, str]]]:
        """What the doctor said, by cell key; cells that it was not asked about are not in it."""
        found: dict[str, list[dict[str, str]]] = {}
        for cell, key in self._ask("SELECT cell, key FROM doctor JOIN cells ON cells.id = cell ORDER BY cell"):
            found[key] = json.loads(self._rows("doctor", key, "WHERE cell = ?", cell)[0][1])
        return found

    # Proofs ----------------------------------------------------------------------------------------------------------

    def proofs(self, key: ProofKey) -> dict[str, Proof]:
        """What is proved about a model, by the digests of the rows."""
        where = "WHERE model = ? AND code = ? AND unit = ? AND space = ?"
        return {row[4]: Proof(*row[5:]) for row in self._rows("proofs", None, where, *key)}

    def proof_keys(self) -> list[ProofKey]:
        """What there are proofs about, in the order of the alphabet."""
        found = self._ask("SELECT DISTINCT model, code, unit, space FROM proofs ORDER BY 1, 2, 3, 4")
        return [ProofKey(*row) for row in found]

    def digests(self, data_hash: str) -> list[str] | None:
        """The digests of the rows that have this hash together, in their order; None where nobody kept them."""
        found = self._rows("digests", None, "WHERE hash = ?", data_hash)
        return unpack_digests(found[0][1]) if found else None

    def proved(self, key: str) -> Integers | None:
        """For each stored row of a cell the changes that are proved to be needed, in the order of `facts`.

        0 where nothing is proved, None where that is so of all. A verified point below its bound is refused.
        """
        info = self.cell(key)
        about, digests = ProofKey.of_cell(info), self.digests(info.data_hash)
        known = {} if about is None or digests is None else self.proofs(about)
        if not known or digests is None:
            return None
        if len(digests) != info.rows:
            raise self._altered("the digests of its rows", key, f"{len(digests)} for {info.rows} rows")
        found = [known.get(digests[place]) for place in self.positions(key)]
        for wrong in contradictions(info, self.facts(key, perturbations=False), found):
            raise StoreError(f"{self.path}: {wrong}")
        return np.array([proof.least if proof else 0 for proof in found], np.int64) if any(found) else None

    # The store itself ------------------------------------------------------------------------------------------------

    def inputs(self, content_hash: str) -> bytes | None:
        """Inputs kept under a hash, packed; None where there are none."""
        found = self._rows("inputs", None, "WHERE hash = ?", content_hash)
        return bytes(found[0][1]) if found else None

    def writer(self) -> str | None:
        """The process that writes here now, in words."""
        return database.holder(self.path) if database.is_held(self.path) else None

    def audit(self) -> list[Flaw]:
        """Everything that is not as it was written, or is missing; nothing is asked of a model."""
        self._catch_up()
        with database.explained(self.path):
            return list(checksums.audit(self._base))

    def notes(self) -> list[str]:
        """What a reader should know of the store's past."""
        lost = database.left_open(self.path) if self._lock is None else None
        return [] if lost is None else [f"{self.path.name}: {lost}"]


def _provenance(made: list[tuple[Any, ...]], runs: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """What the runs that filled a cell have in common, lists of values where they differ, and what they took."""
    if not made:
        return {}
    about = [runs[run] for run, *_ in made]
    merged: dict[str, Any] = {}
    for name in dict.fromkeys(name for one in about for name in one):
        values = [
            value for i, one in enumerate(about) if (value := one.get(name)) not in [o.get(name) for o in about[:i]]
        ]
        merged[name] = values[0] if len(values) == 1 else values
    peaks = [
        [peak for peak in column if peak is not None] for column in zip(*(rest[1:] for _, *rest in made), strict=True)
    ]
    return merged | {
        "runs": len(made),
        "seconds": sum(seconds for _, seconds, *_ in made),
        "peak_memory_device": max(peaks[0], default=None),
        "peak_memory_process": max(peaks[1], default=None),
    }
