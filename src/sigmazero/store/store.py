"""Keep the facts of every sample in one SQLite file.

A cell is one attack against one model on some rows; a sample is one of its rows, found by its position in the cell.
A batch is committed before `append` returns, so a run that is killed loses nothing that was stored. One process writes
at a time; any number may read meanwhile.

    with Store(path, write=True) as store:
        store.register([info, ...])
        run = store.begin(provenance)
        store.append(info.key, positions, facts, run=run)
    with Store(path) as store:
        facts = store.facts(info.key)
"""

from __future__ import annotations

import io
import json
import math
import sqlite3
import struct
import uuid
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sigmazero.core import faults
from sigmazero.core.messages import digest, one_line
from sigmazero.core.metrics import Outcome
from sigmazero.store.facts import COLUMNS, KINDS, CellInfo, Facts, Integers, Trace
from sigmazero.store.file import (
    APPLICATION,
    RESTORE,
    VERSION,
    StoreBusy,
    StoreError,
    WriterLock,
    explained,
    is_locked,
    noted,
    open_reading,
    open_writing,
    this_process,
)
from sigmazero.store.proofs import Proof, ProofKey, contradictions

__all__ = ["CellStatus", "Failure", "Flaw", "Store", "StoreBusy", "StoreError", "WriterLock"]

CHUNK = 500  # samples that are converted at a time: few, so that their values stay in the processor's cache
VALUES = (*COLUMNS, "changed", "became")  # of a sample; its checksum covers them and its position
SAMPLE = struct.Struct("<q" + "".join("d" if kind is np.float64 else "q" for kind in KINDS.values()))  # for checksums
CELL = ("key", "info", "model", "dataset", "attack", "budget", "unit", "rows")  # of a cell; `info` is all of it as JSON
ZIP = (EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error)  # raised for damaged .npz files
UNREADABLE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, OSError, *ZIP)

SCHEMA = f"""
CREATE TABLE cells (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, info TEXT NOT NULL, model TEXT NOT NULL,
    dataset TEXT NOT NULL, attack TEXT NOT NULL, budget INTEGER, unit TEXT NOT NULL, rows INTEGER NOT NULL,
    findings TEXT, superseded_by TEXT);
CREATE TABLE runs (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, provenance TEXT NOT NULL);
CREATE TABLE samples (cell INTEGER NOT NULL REFERENCES cells, position INTEGER NOT NULL,
    run INTEGER NOT NULL REFERENCES runs, batch INTEGER NOT NULL,
    {", ".join(f"{name} {'REAL' if kind is np.float64 else 'INTEGER NOT NULL'}" for name, kind in KINDS.items())},
    changed BLOB NOT NULL, became BLOB NOT NULL, checksum BLOB NOT NULL, peak_device INTEGER,
    PRIMARY KEY (cell, position)) WITHOUT ROWID;
CREATE TABLE failures (cell INTEGER NOT NULL REFERENCES cells, start INTEGER NOT NULL, stop INTEGER NOT NULL,
    tries INTEGER NOT NULL, error TEXT NOT NULL, PRIMARY KEY (cell, start));
CREATE TABLE traces (cell INTEGER NOT NULL REFERENCES cells, position INTEGER NOT NULL, npz BLOB NOT NULL,
    PRIMARY KEY (cell, position));
CREATE TABLE arrays (name TEXT PRIMARY KEY, npz BLOB NOT NULL);
CREATE TABLE proofs (model TEXT NOT NULL, code TEXT NOT NULL, unit TEXT NOT NULL, space TEXT NOT NULL,
    row TEXT NOT NULL, least INTEGER NOT NULL, method TEXT NOT NULL, version INTEGER NOT NULL, seconds REAL NOT NULL,
    PRIMARY KEY (model, code, unit, space, row));
CREATE TABLE notes (name TEXT PRIMARY KEY, text TEXT NOT NULL);
CREATE VIEW results AS SELECT key, model, dataset, attack, budget, unit,
    CASE outcome {" ".join(f"WHEN {how.value} THEN '{how.name.lower()}'" for how in Outcome)} END AS ended, samples.*
    FROM samples JOIN cells ON cells.id = samples.cell;
PRAGMA application_id={APPLICATION};
PRAGMA user_version={VERSION};
"""
# Insert bounds: of two bounds for a row the higher one stays. The braces take the values or a query.
PROVE = (
    "INSERT INTO proofs {} ON CONFLICT (model, code, unit, space, row) DO UPDATE SET least = excluded.least, "
    "method = excluded.method, version = excluded.version, seconds = excluded.seconds WHERE excluded.least >= least"
)

Stage = Literal["done", "running", "begun", "waiting", "failed"]


@dataclass(frozen=True)
class Flaw:
    """Damage in a store; `key` is that of the damaged cell, if it is in one."""

    what: str
    key: str | None = None


@dataclass(frozen=True)
class CellStatus:
    """The progress of a cell; `seconds` is the time that its stored samples took."""

    cell: CellInfo
    done: int
    seconds: float
    error: str | None
    state: Stage


@dataclass(frozen=True)
class Failure:
    """Rows of a cell, from `start` up to `stop`, that failed `tries` times, and the error."""

    key: str
    start: int
    stop: int
    tries: int
    error: str


class Store:
    """Read and write facts on disk.

    write   open the file to write, and make it if it is not there; no other process may write until it is closed
    """

    def __init__(self, path: str | PathLike[str], *, write: bool = False) -> None:
        self.path = Path(path)
        self._lock: WriterLock | None = None
        if not write:
            self._base = open_reading(self.path)
            return
        if self.path.exists():
            open_reading(self.path, empty=True).close()  # refuse another program's file before writing next to it
        self._lock = WriterLock(self.path)
        try:
            self._base = open_writing(self.path, SCHEMA)
            self._note("writer", this_process())
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; everything appended is on disk already."""
        if self._lock is not None:
            faults.reach("store.closing")
            self._base.execute("PRAGMA busy_timeout=500")
            with suppress(sqlite3.OperationalError):  # if a process is reading or the disk is full, the log stays
                self._base.execute("PRAGMA journal_mode=DELETE")  # a closed store is one file
        self._base.close()
        if self._lock is not None:
            self._lock.close()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write everything inside the block in one transaction."""
        if self._lock is None:
            raise StoreError(f"{self.path} is open for reading; open it with Store(path, write=True)")
        if self._in_transaction():
            yield
            return
        with explained(self.path):
            faults.reach("store.begin")
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield
                faults.reach("store.commit")
                self._base.execute("COMMIT")
                faults.reach("store.committed")
            except BaseException:
                if self._in_transaction():
                    self._base.execute("ROLLBACK")
                raise

    def _in_transaction(self) -> bool:
        return self._base.in_transaction

    def _read(self, query: str, *values: Any) -> list[Any]:
        with explained(self.path):
            return self._base.execute(query, values).fetchall()

    def _write(self, statement: str, *values: Any) -> int:
        """Execute a statement and return the number of the row that it inserted."""
        with self.together():
            return self._base.execute(statement, values).lastrowid or 0

    def _write_all(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        with self.together():
            self._base.executemany(statement, rows)

    @contextmanager
    def _reading(self, what: str, key: object = None) -> Iterator[None]:
        """Report a damaged store if something inside the block cannot be read."""
        try:
            yield
        except UNREADABLE as error:
            where = self.path if key is None else f"{self.path}, cell {str(key)[:12]}"
            raise StoreError(f"{where}: {what} cannot be read ({error}); the store is damaged: {RESTORE}") from error

    # Cells and runs --------------------------------------------------------------------------------------------------

    def register(self, cells: Sequence[CellInfo]) -> None:
        """Add cells, also those that have not begun. A cell that is known keeps its samples and takes the new names."""
        newest = ", ".join(f"{name} = excluded.{name}" for name in CELL)
        self._write_all(
            f"INSERT INTO cells ({', '.join(CELL)}) VALUES ({', '.join('?' * len(CELL))}) "
            f"ON CONFLICT (key) DO UPDATE SET {newest}",
            [[cell.text() if name == "info" else getattr(cell, name) for name in CELL] for cell in cells],
        )

    def begin(self, provenance: dict[str, Any]) -> int:
        """Add a run (versions, device, commit) and return its number for `append`.

        A random name identifies it when stores are merged.
        """
        text = json.dumps(provenance, sort_keys=True)
        return self._write("INSERT INTO runs (name, provenance) VALUES (?, ?)", uuid.uuid4().hex, text)

    def cell_keys(self) -> list[str]:
        """Return the keys of all cells, in the order they were registered."""
        return [str(key) for (key,) in self._read("SELECT key FROM cells ORDER BY id")]

    def cell(self, key: str) -> CellInfo:
        """Return the description of a cell, without the provenance of its facts."""
        return self._cell(key)[1]

    def _cell(self, key: str) -> tuple[int, CellInfo]:
        found = self._read("SELECT id, info FROM cells WHERE key = ?", key)
        if not found:
            raise KeyError(f"{self.path} has no cell {key!r}; cell_keys() lists all of them")
        return found[0][0], self._parse(key, found[0][1])

    def _parse(self, key: str, text: str) -> CellInfo:
        with self._reading("its description", key):
            return CellInfo.parse(text)

    def cells(self) -> list[CellInfo]:
        """Return every cell, in the order they were registered, with the provenance of its samples."""
        return [status.cell for status in self.status()]

    def status(self) -> list[CellStatus]:
        """Return the progress of every cell; "running" are those that another process works on now."""
        errors = {failure.key: failure.error for failure in self.failures()}
        running = set(self.progress().get("cells", ()))
        runs: dict[int, list[Any]] = {}  # by cell: the provenance of each run, its samples, seconds and peaks of memory
        for cell, *run in self._read(
            "SELECT s.cell, r.provenance, count(*), total(s.seconds), max(s.peak_device) "
            "FROM samples s JOIN runs r ON r.id = s.run GROUP BY s.cell, s.run ORDER BY s.cell, s.run"
        ):
            runs.setdefault(cell, []).append(run)
        found = []
        for number, key, text in self._read("SELECT id, key, info FROM cells ORDER BY id"):
            with self._reading("the provenance of its runs", key):
                provenance = _joined(runs.get(number, []))
            info, done = replace(self._parse(key, text), provenance=provenance), sum(r[1] for r in runs.get(number, []))
            state: Stage = "running" if key in running else "begun" if done else "waiting"
            state = "failed" if key in errors else "done" if done >= info.rows else state
            found.append(CellStatus(info, done, provenance.get("seconds", 0.0), errors.get(key), state))
        return found

    def fail(self, key: str, error: str, span: tuple[int, int] | None = None, tries: int = 1) -> None:
        """Record why rows of a cell failed, by default all of them."""
        number, info = self._cell(key)
        start, stop = span or (0, info.rows)
        self._write("REPLACE INTO failures VALUES (?, ?, ?, ?, ?)", number, int(start), int(stop), tries, error)

    def retry(self, key: str) -> None:
        """Delete the failures of a cell, which is run again."""
        self._write("DELETE FROM failures WHERE cell = ?", self._cell(key)[0])

    def failures(self) -> list[Failure]:
        """Return the rows that failed when they were last tried, in the order of cells and rows."""
        query = "SELECT key, start, stop, tries, error FROM failures JOIN cells ON id = cell ORDER BY id, start"
        return [Failure(*row) for row in self._read(query)]

    def diagnose(self, key: str, findings: list[dict[str, str]]) -> None:
        """Record the doctor's findings about a cell's model on its rows; an empty list if there are none."""
        self._write("UPDATE cells SET findings = ? WHERE id = ?", json.dumps(findings), self._cell(key)[0])

    def findings(self) -> dict[str, list[dict[str, str]]]:
        """Return the doctor's findings by cell; cells that it did not examine are left out."""
        found = self._read("SELECT key, findings FROM cells WHERE findings IS NOT NULL ORDER BY id")
        with self._reading("the doctor's findings"):
            return {key: json.loads(text) for key, text in found}

    def supersede(self, key: str, by: str) -> None:
        """Mark a cell as replaced by another one, whose model answers differently."""
        self._write("UPDATE cells SET superseded_by = ? WHERE id = ?", by, self._cell(key)[0])

    def superseded(self) -> dict[str, str]:
        """Return the cells that others replace, with the keys of those."""
        return dict(self._read("SELECT key, superseded_by FROM cells WHERE superseded_by IS NOT NULL"))

    def _note(self, name: str, text: str) -> None:
        self._write("REPLACE INTO notes VALUES (?, ?)", name, text)

    def version(self) -> str:
        """Return a text that changes with facts, findings, failures and proofs, but not with progress."""
        parts = [
            self._read("SELECT cell, count(*) FROM samples GROUP BY cell"),
            self._read("SELECT key, info, findings, superseded_by FROM cells ORDER BY id"),
            self._read("SELECT cell, start, tries FROM failures ORDER BY 1, 2"),
            self._read("SELECT count(*), total(least) FROM proofs"),
        ]
        return blake2b(repr(parts).encode(), digest_size=8).hexdigest()

    def note_progress(self, state: dict[str, Any]) -> None:
        """Record how far this run is, for other processes."""
        self._note("progress", json.dumps(state))

    def progress(self) -> dict[str, Any]:
        """Return how far the run is that writes here now (`bench.forecast`); empty if there is none."""
        if self._lock is None and not is_locked(self.path):
            return {}
        with self._reading("the progress"):
            return dict(json.loads(noted(self._base, self.path, "progress") or "{}"))

    def writer(self) -> str | None:
        """Return the process that writes here now, in words."""
        return noted(self._base, self.path, "writer") if is_locked(self.path) else None

    # Samples ---------------------------------------------------------------------------------------------------------

    def append(
        self,
        key: str,
        positions: int | Sequence[int] | NDArray[Any],
        facts: Facts,
        *,
        run: int,
        peak_device: int | None = None,
    ) -> None:
        """Store a batch of a cell's samples; samples that are stored already stay as they are.

        positions   of the rows in the cell, or the first position if they are consecutive
        peak_device   most memory of the device, in bytes, that the batch took
        """
        if not len(facts):
            return
        number, info = self._cell(key)
        where = np.asarray(positions)
        where = where + np.arange(len(facts)) if where.ndim == 0 else where
        if len(np.unique(where)) != len(facts) or len(where) != len(facts):
            raise ValueError(f"facts of {len(facts)} rows need as many different positions; got {positions!r}")
        if where.min() < 0 or where.max() >= info.rows:
            raise StoreError(f"cell {key[:12]} has {info.rows} rows; {where.min()} to {where.max()} do not fit")
        batch = int(where.min())
        self._write_all(
            f"INSERT OR IGNORE INTO samples VALUES ({', '.join('?' * (len(VALUES) + 6))})",
            [(number, row[0], run, batch, *row[1:], checksum(key, row), peak_device) for row in _rows(where, facts)],
        )

    def positions(self, key: str) -> Integers:
        """Return the positions of the samples that `facts` gives, in the same order."""
        return np.flatnonzero(self.stored(key))

    def stored(self, key: str) -> NDArray[np.bool_]:
        """Return which positions of a cell have their facts, as a mask."""
        return self._mask("samples", key)

    def traced(self, key: str) -> NDArray[np.bool_]:
        """Return which positions of a cell have a trace, as a mask."""
        return self._mask("traces", key)

    def _mask(self, table: str, key: str) -> NDArray[np.bool_]:
        number, info = self._cell(key)
        done = np.zeros(info.rows, np.bool_)
        with self._reading(f"its {table}", key):
            done[[position for (position,) in self._read(f"SELECT position FROM {table} WHERE cell = ?", number)]] = (
                True
            )
        return done

    def facts(self, key: str, perturbations: bool = True, positions: Sequence[int] | Integers | None = None) -> Facts:
        """Return the stored facts of a cell, in the order of its rows.

        perturbations   read the changes too; otherwise all samples look unchanged
        positions       read these samples alone
        """
        query, values = "cell = ?", list[Any]([self._cell(key)[0]])
        if positions is not None:
            query += " AND position IN (SELECT value FROM json_each(?))"
            values.append(json.dumps(np.asarray(positions, np.int64).tolist()))
        names, parts = ", ".join(VALUES if perturbations else COLUMNS), []
        with explained(self.path), self._reading("its samples", key):
            found = self._base.execute(f"SELECT {names} FROM samples WHERE {query} ORDER BY position", values)
            while rows := found.fetchmany(CHUNK):
                parts.append(_facts(rows, perturbations))
        return Facts.join(parts)

    def batches(self, key: str) -> list[tuple[Integers, dict[str, Any]]]:
        """Return the positions of each batch of a cell, and the provenance of the run that made it."""
        found: dict[tuple[int, int], list[int]] = {}
        query = "SELECT run, batch, position FROM samples WHERE cell = ? ORDER BY position"
        for run, batch, position in self._read(query, self._cell(key)[0]):
            found.setdefault((run, batch), []).append(position)
        runs = {run: json.loads(text) for run, text in self._read("SELECT id, provenance FROM runs")}
        return [(np.array(positions), runs.get(run, {})) for (run, _), positions in found.items()]

    # Traces and arrays -----------------------------------------------------------------------------------------------

    def append_trace(self, key: str, position: int, trace: Trace) -> None:
        """Store the trace of a sample, in place of an older one."""
        npz = _npz({name: value for name, value in vars(trace).items() if value is not None})
        self._write("REPLACE INTO traces VALUES (?, ?, ?)", self._cell(key)[0], position, npz)

    def trace(self, key: str, position: int) -> Trace:
        """Return the trace of a sample."""
        found = self._read("SELECT npz FROM traces WHERE cell = ? AND position = ?", self._cell(key)[0], position)
        if not found:
            what = f"{self.path} has no trace of row {position} of cell {key[:12]}"
            raise KeyError(f"{what}; write trace = true in its plan")
        with self._reading(f"the trace of row {position}", key):
            return Trace(**_arrays(found[0][0]))

    def keep_arrays(self, name: str, **arrays: NDArray[Any]) -> None:
        """Store arrays that no file holds (rows, masks, bounds) under the hash of their content."""
        self._write("INSERT OR IGNORE INTO arrays VALUES (?, ?)", name, _npz(arrays))

    def arrays(self, name: str) -> dict[str, NDArray[Any]] | None:
        """Return the arrays with a name; None if there are none."""
        found = self._read("SELECT npz FROM arrays WHERE name = ?", name)
        with self._reading(f"the arrays {name[:24]}"):
            return _arrays(found[0][0]) if found else None

    def keep_answers(self, key: str, logits: Tensor) -> None:
        """Store the model's logits for a few clean rows of a cell, which identify the model."""
        self.keep_arrays(f"answers {key}", logits=logits.detach().cpu().double().numpy())

    def answers(self, key: str) -> Tensor | None:
        """Return the model's logits for a few clean rows of a cell; None if there are none."""
        arrays = self.arrays(f"answers {key}")
        return None if arrays is None else torch.from_numpy(arrays["logits"])

    # Proofs ----------------------------------------------------------------------------------------------------------

    def keep_digests(self, data_hash: str, digests: Sequence[str]) -> None:
        """Store the digests of rows (`proofs.row_digests`) under the hash of all of them."""
        self.keep_arrays(f"digests {data_hash}", rows=np.array(digests, np.str_))

    def digests(self, data_hash: str) -> list[str] | None:
        """Return the digests of the rows with this hash, in their order; None if there are none."""
        arrays = self.arrays(f"digests {data_hash}")
        return None if arrays is None else [str(each) for each in arrays.get("rows", ())]

    def prove(self, key: ProofKey, proofs: Mapping[str, Proof]) -> None:
        """Store bounds by the digests of their rows; of two bounds for a row the higher one stays.

        Refuse them all if a stored point needs fewer changes than its bound.
        """
        rows = [(*key, row, one.least, one.method, one.version, one.seconds) for row, one in proofs.items()]
        with self.together():
            self._write_all(PROVE.format("VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"), rows)
            for name in self.cell_keys():
                if ProofKey.of_cell(self.cell(name)) == key:
                    self.proved(name)

    def proofs(self, key: ProofKey) -> dict[str, Proof]:
        """Return the bounds about a model, by the digests of the rows."""
        where = "model = ? AND code = ? AND unit = ? AND space = ?"
        found = self._read(f"SELECT row, least, method, version, seconds FROM proofs WHERE {where}", *key)
        return {row: Proof(*rest) for row, *rest in found}

    def keep_examples(self, key: ProofKey, examples: Mapping[str, tuple[NDArray[Any], NDArray[Any]]]) -> None:
        """Store adversarial examples that the search for bounds found, by the digests of their rows.

        An example is the positions of the changed features and their new values; it takes the place of an earlier one.
        """
        for row, (places, values) in examples.items():
            npz = _npz({"places": places, "values": values})
            self._write("REPLACE INTO arrays VALUES (?, ?)", f"{_example(key)}{row}", npz)

    def examples(self, key: ProofKey) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
        """Return the examples beside the bounds about a model, by the digests of the rows."""
        begin = _example(key)
        found = self._read("SELECT name, npz FROM arrays WHERE name >= ? AND name < ?", begin, f"{begin}~")
        with self._reading("the examples beside its proofs"):
            arrays = {name.removeprefix(begin): _arrays(npz) for name, npz in found}
            return {row: (each["places"], each["values"]) for row, each in arrays.items()}

    def proof_keys(self) -> list[ProofKey]:
        """Return the models, units and spaces that there are bounds about, in alphabetical order."""
        found = self._read("SELECT DISTINCT model, code, unit, space FROM proofs ORDER BY 1, 2, 3, 4")
        return [ProofKey(*row) for row in found]

    def proved(self, key: str) -> Integers | None:
        """Return how many changes each stored row of a cell is proved to need, in the order of `facts`.

        A row without a proof has 0; None if no row has one. Raise an error if a point is below its bound.
        """
        info = self.cell(key)
        about = ProofKey.of_cell(info)
        known = {} if about is None else self.proofs(about)
        if not known or (digests := self.digests(info.data_hash)) is None:
            return None
        with self._reading("the digests of its rows", key):
            found = [known.get(digests[position]) for position in self.positions(key)]
        for wrong in contradictions(info, self.facts(key, perturbations=False), found):
            raise StoreError(f"{self.path}: {wrong}")
        return np.array([proof.least if proof else 0 for proof in found], np.int64) if any(found) else None

    # Damage ----------------------------------------------------------------------------------------------------------

    def damage(self) -> list[Flaw]:
        """Return what SQLite finds wrong with the file, and what does not fit its checksum or cannot be read.

        Checksums guard against accidents and careless edits. A deleted sample counts as not stored yet; a forged one
        with a new checksum is found only by querying the model (`sigmazero.bench.verify`).
        """
        found: list[Flaw] = []
        try:
            for (text,) in self._read("PRAGMA integrity_check(20)"):
                found += [] if text == "ok" else [Flaw(f"SQLite finds the file damaged ({text}): {RESTORE}")]
            for (table,) in self._read('SELECT DISTINCT "table" FROM pragma_foreign_key_check'):
                found.append(Flaw(f"the table {table} names cells or runs that are not in the store: {RESTORE}"))
            for number, key, rows in self._read("SELECT id, key, rows FROM cells"):
                if wrong := self._altered(number, key, rows):
                    more = f" and {len(wrong) - 1} more" if wrong[1:] else ""
                    what = f"the sample at position {wrong[0]}{more}: not as written; delete and run again"
                    found.append(Flaw(what, str(key)))
            self.status()
            self.findings()
            for (name,) in self._read("SELECT name FROM arrays"):
                self.arrays(name)
            for key, position in self._read("SELECT key, position FROM traces JOIN cells ON id = cell"):
                self.trace(key, position)
        except (StoreError, sqlite3.DatabaseError) as error:
            found.append(Flaw(one_line(error).removeprefix(f"{self.path}: ")))
        return found

    def _altered(self, number: int, key: str, rows: int) -> list[Any]:
        """Return the positions of the samples of a cell that do not fit their checksums."""
        wrong, names = [], ", ".join(("position", *VALUES, "checksum"))
        for *row, stored in self._base.execute(f"SELECT {names} FROM samples WHERE cell = ?", (number,)):
            try:
                whole = checksum(key, row) == stored and 0 <= row[0] < rows
            except (struct.error, TypeError):  # a value of another type
                whole = False
            if not whole:
                wrong.append(row[0])
        return wrong


# Samples as rows of the table ----------------------------------------------------------------------------------------


def _example(key: ProofKey) -> str:
    """Return how the names of a key's examples begin."""
    return f"example {digest(list(key))} "


def checksum(key: str, row: Sequence[Any]) -> bytes:
    """Return the checksum of a sample: the key of its cell, its position and all its values."""
    *values, changed, became = row
    numbers = SAMPLE.pack(*(math.nan if value is None else value for value in values))
    return blake2b(key.encode() + numbers + changed + became, digest_size=8).digest()


def _rows(positions: NDArray[Any], facts: Facts) -> Iterator[tuple[Any, ...]]:
    """Yield position, columns and changes of each sample as SQLite returns them: NaN is NULL, −0.0 is 0.0."""
    columns: list[list[Any]] = [positions.tolist()]
    for name, kind in KINDS.items():
        values = getattr(facts, name)
        plain = (values + 0.0 if kind is np.float64 else values).tolist()
        columns.append([None if value != value else value for value in plain] if np.isnan(values).any() else plain)
    size = 8 if facts.value.dtype.itemsize > 4 else 4
    changed, became = facts.index.astype("<u4").tobytes(), facts.value.astype(f"<f{size}").tobytes()
    spans = pairwise(facts.offsets.tolist())
    for row, (start, stop) in zip(zip(*columns, strict=True), spans, strict=True):
        yield *row, changed[4 * start : 4 * stop], became[size * start : size * stop]


def _facts(rows: list[tuple[Any, ...]], perturbations: bool) -> Facts:
    *columns, changed, became = zip(*rows, strict=True) if perturbations else (*zip(*rows, strict=True), (), ())
    named: dict[str, Any] = {
        name: np.array(column, kind) for (name, kind), column in zip(KINDS.items(), columns, strict=True)
    }
    counts = [len(blob) // 4 for blob in changed] if perturbations else [0] * len(rows)
    index, value = np.frombuffer(b"".join(changed), "<u4"), b"".join(became)
    size = 8 if len(value) > 4 * len(index) else 4  # bytes of a value: all rows of a cell have the same type
    return Facts(
        **named,
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]),
        index=index.astype(np.int64),
        value=np.frombuffer(value, f"<f{size}").astype(f"f{size}"),
    )


def _npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _arrays(npz: bytes) -> dict[str, NDArray[Any]]:
    with np.load(io.BytesIO(npz), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _joined(runs: list[Any]) -> dict[str, Any]:
    """Join the provenance of a cell's runs: lists where they differ, the sum of seconds, the most memory."""
    if not runs:
        return {}
    provenance = [json.loads(text) for text, *_ in runs]
    joined: dict[str, Any] = {}
    for name in dict.fromkeys(name for one in provenance for name in one):
        values = [one.get(name) for one in provenance]
        different = [value for i, value in enumerate(values) if value not in values[:i]]
        joined[name] = different[0] if len(different) == 1 else different
    _, _, seconds, peaks = zip(*runs, strict=True)
    return joined | {
        "runs": len(runs),
        "seconds": sum(seconds),
        "peak_memory_device": max((peak for peak in peaks if peak is not None), default=None),
    }
