"""Keep the facts of every sample in one SQLite file.

A cell is one attack against one model on some rows; a sample is one of its rows, found by its position in the cell.
A batch is committed before `append` returns, so a run may be killed at any moment and the same command goes on. One
process writes at a time; any number may read meanwhile. The table `samples` has one row per sample, and the view
`results` adds the names of its cell: `sqlite3`, Datasette and pandas read both without this package.

    with Store(path, write=True) as store:                 # Store(path) reads; StoreBusy names who writes
        store.register([info, ...])                        # CellInfo of each cell; again: the newest description wins
        run = store.begin(provenance)                      # a new run; its number goes with what it appends
        store.append(key, positions, facts, run=run)       # idempotent: stored samples stay; positions or the first one
        store.fail(key, error, span, tries); store.retry(key)
        store.diagnose(key, findings); store.supersede(key, by)
        store.append_trace(key, position, trace); store.keep_arrays(name, **arrays)
        store.keep_digests(data_hash, digests); store.prove(proof_key, proofs)
        store.note_progress(state)
        with store.together(): ...                         # one transaction for all that is written inside

    store.cell_keys(), cells(), cell(key), status(), failures(), progress(), writer()
    store.stored(key) -> mask; positions(key); facts(key, perturbations=True) -> Facts; batches(key)
    store.findings(), superseded(), traced(key), trace(key, position), arrays(name)
    store.proofs(proof_key), proof_keys(), digests(data_hash), proved(key)
    store.damage() -> [Flaw]                               # SQLite's integrity_check, and the checksum of each sample
"""

from __future__ import annotations

import getpass
import io
import json
import os
import socket
import sqlite3
import sys
import time
import uuid
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
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
from sigmazero.core.messages import one_line
from sigmazero.core.metrics import Outcome
from sigmazero.store.facts import COLUMNS, KINDS, CellInfo, Facts, Integers
from sigmazero.store.proofs import Proof, ProofKey, contradictions
from sigmazero.store.trace import Trace

APPLICATION, VERSION = 0x516D615A, 1  # mark a SQLite file as a store, and its tables as these
CHUNK = 50_000  # samples that are converted at a time
VALUES = (*COLUMNS, "changed", "became")  # of a sample; its checksum covers them and its position
ABOUT = ("key", "info", "model", "dataset", "attack", "budget", "unit", "rows")  # of a cell, readable without its JSON

SCHEMA = f"""
CREATE TABLE cells (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, info TEXT NOT NULL, model TEXT NOT NULL,
    dataset TEXT NOT NULL, attack TEXT NOT NULL, budget INTEGER, unit TEXT NOT NULL, rows INTEGER NOT NULL,
    findings TEXT, superseded_by TEXT);
CREATE TABLE runs (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, provenance TEXT NOT NULL);
CREATE TABLE samples (cell INTEGER NOT NULL REFERENCES cells, position INTEGER NOT NULL,
    run INTEGER NOT NULL REFERENCES runs, batch INTEGER NOT NULL,
    {", ".join(f"{name} {'REAL' if kind is np.float64 else 'INTEGER NOT NULL'}" for name, kind in KINDS.items())},
    changed BLOB NOT NULL, became BLOB NOT NULL, checksum BLOB NOT NULL,
    PRIMARY KEY (cell, position)) WITHOUT ROWID;
CREATE TABLE memory (cell INTEGER NOT NULL REFERENCES cells, run INTEGER NOT NULL REFERENCES runs,
    peak_device INTEGER, peak_process INTEGER, PRIMARY KEY (cell, run));
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

Stage = Literal["done", "running", "begun", "waiting", "failed"]


class StoreError(RuntimeError):
    """Report a store that cannot be used as asked; the message says why and what to do."""


class StoreBusy(StoreError):
    """Report that another process writes to the store."""


@dataclass(frozen=True)
class Flaw:
    """Something in a store that is not as it was written; `key` is that of the cell, if it concerns one."""

    what: str
    key: str | None = None


@dataclass(frozen=True)
class CellStatus:
    """How far a cell is; `seconds` is what its stored samples took."""

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


class Store:
    """Read and write facts on disk.

    write   open the file to write, and make it if it is not there; this is the only writer while it is open
    wait    seconds to wait for another writer to end before giving up
    """

    def __init__(self, path: str | PathLike[str], *, write: bool = False, wait: float = 0.0) -> None:
        self.path, self._lock = Path(path), None
        if not write:
            self._base = open_reading(self.path)
            return
        if self.path.exists():
            with closing(open_reading(self.path, empty=True)):
                pass  # another program's file is refused before anything is written beside it
        self._lock = WriterLock(self.path, wait)
        try:
            self._base = _open_writing(self.path)
            self._note("writer", _myself())
        except BaseException:
            self._lock.close()
            raise

    _lock: WriterLock | None

    @classmethod
    def over(cls, path: Path, base: sqlite3.Connection) -> Store:
        """Return a reader of an open connection; errors name `path`."""
        store = cls.__new__(cls)
        store.path, store._base, store._lock = path, base, None
        return store

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; everything appended is on disk already."""
        if self._lock is not None:
            faults.reach("store.closing")
            self._base.execute("PRAGMA busy_timeout=500")
            with suppress(sqlite3.OperationalError):  # a reader is at work or the disk is full: the log stays
                self._base.execute("PRAGMA journal_mode=DELETE")  # at rest a store is one file
        self._base.close()
        if self._lock is not None:
            self._lock.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write all or nothing; inside another transaction, as a part of it."""
        if self._lock is None:
            raise StoreError(f"{self.path} is open for reading; open it with Store(path, write=True)")
        if self._open():
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
                if self._open():
                    self._base.execute("ROLLBACK")
                raise

    def _open(self) -> bool:
        return self._base.in_transaction

    def together(self) -> AbstractContextManager[None]:
        """Store everything that is written inside in one transaction: a commit takes its time, whatever its size."""
        return self._transaction()

    def _ask(self, query: str, *values: Any) -> list[Any]:
        with explained(self.path):
            return self._base.execute(query, values).fetchall()

    def _write(self, statement: str, *values: Any) -> None:
        with self._transaction(), explained(self.path):
            self._base.execute(statement, values)

    def _note(self, name: str, text: str) -> None:
        self._write("REPLACE INTO notes VALUES (?, ?)", name, text)

    def _noted(self, name: str) -> str | None:
        found = self._ask("SELECT text FROM notes WHERE name = ?", name)
        return found[0][0] if found else None

    def _damaged(self, what: str, key: str | None, error: BaseException | str) -> StoreError:
        place = self.path if key is None else f"{self.path}, cell {key[:12]}"
        return StoreError(f"{place}: {what} cannot be read ({error}); the store is damaged: {RESTORE}")

    # Cells and runs --------------------------------------------------------------------------------------------------

    def register(self, cells: Sequence[CellInfo]) -> None:
        """Note which cells there are to be, so that a status can count what has not begun; the newest names win."""
        with self._transaction(), explained(self.path):
            newest = ", ".join(f"{name} = excluded.{name}" for name in ABOUT)
            self._base.executemany(
                f"INSERT INTO cells ({', '.join(ABOUT)}) VALUES ({', '.join('?' * len(ABOUT))}) "
                f"ON CONFLICT (key) DO UPDATE SET {newest}",
                [[cell.text() if name == "info" else getattr(cell, name) for name in ABOUT] for cell in cells],
            )

    def begin(self, provenance: dict[str, Any]) -> int:
        """Note a run (versions, device, commit) and return its number, which goes with the samples it appends.

        Its random name tells it from every other run when stores are merged.
        """
        self._write(
            "INSERT INTO runs (name, provenance) VALUES (?, ?)",
            uuid.uuid4().hex,
            json.dumps(provenance, sort_keys=True),
        )
        return int(self._ask("SELECT max(id) FROM runs")[0][0])

    def cell_keys(self) -> list[str]:
        """Return the keys of all cells, in the order they were registered."""
        return [str(key) for (key,) in self._ask("SELECT key FROM cells ORDER BY id")]

    def _cell(self, key: str) -> tuple[int, CellInfo]:
        found = self._ask("SELECT id, info FROM cells WHERE key = ?", key)
        if not found:
            raise KeyError(f"{self.path} has no cell {key!r}; its cell_keys() are all there are")
        return found[0][0], self._parse(key, found[0][1])

    def _parse(self, key: str, text: str) -> CellInfo:
        try:
            return CellInfo.parse(text)
        except (ValueError, TypeError, KeyError) as error:
            raise self._damaged("its description", str(key), error) from error

    def cell(self, key: str) -> CellInfo:
        """Return what a cell asks, without the provenance of its facts."""
        return self._cell(key)[1]

    def _made(self) -> dict[int, list[tuple[Any, ...]]]:
        """Return by cell the runs that filled it: provenance, samples, seconds, and both peaks of memory."""
        made: dict[int, list[tuple[Any, ...]]] = {}
        for cell, *rest in self._ask(
            "SELECT s.cell, r.provenance, s.count, s.seconds, m.peak_device, m.peak_process FROM "
            "(SELECT cell, run, count(*) count, ifnull(total(seconds), 0.0) seconds FROM samples GROUP BY 1, 2) s "
            "LEFT JOIN runs r ON r.id = s.run LEFT JOIN memory m ON m.cell = s.cell AND m.run = s.run ORDER BY 1, s.run"
        ):
            made.setdefault(cell, []).append(tuple(rest))
        return made

    def cells(self) -> list[CellInfo]:
        """Return every cell, in the order they were registered, with the provenance of what is stored of it."""
        return [status.cell for status in self.status()]

    def status(self) -> list[CellStatus]:
        """Return how far every cell is; those are running that the process which writes here says it is at."""
        wrong = {failure.key: failure.error for failure in self.failures()}
        made, at_work, found = self._made(), set(self.progress().get("cells", ())), []
        for number, key, text in self._ask("SELECT id, key, info FROM cells ORDER BY id"):
            parts = made.get(number, [])
            try:
                about = _provenance(parts)
            except (ValueError, TypeError, AttributeError) as error:
                raise self._damaged("the provenance of its runs", str(key), error) from error
            info, done = replace(self._parse(key, text), provenance=about), sum(part[1] for part in parts)
            stage: Stage = "running" if key in at_work else "begun" if done else "waiting"
            stage = "failed" if key in wrong else "done" if done >= info.rows else stage
            found.append(CellStatus(info, done, about.get("seconds", 0.0), wrong.get(key), stage))
        return found

    def fail(self, key: str, error: str, span: tuple[int, int] | None = None, tries: int = 1) -> None:
        """Note why some rows of a cell could not be run, by default all that it lacks; see `retry`."""
        number, info = self._cell(key)
        start, stop = span or (0, info.rows)
        self._write("REPLACE INTO failures VALUES (?, ?, ?, ?, ?)", number, int(start), int(stop), tries, error)

    def retry(self, key: str) -> None:
        """Forget the failures of a cell, since it is run again."""
        number, _ = self._cell(key)
        if self._ask("SELECT 1 FROM failures WHERE cell = ?", number):
            self._write("DELETE FROM failures WHERE cell = ?", number)

    def failures(self) -> list[Failure]:
        """Return every span of rows that failed when it was last tried, in the order of cells and rows."""
        return [
            Failure(*row)
            for row in self._ask(
                "SELECT key, start, stop, tries, error FROM failures JOIN cells ON id = cell ORDER BY id, start"
            )
        ]

    def diagnose(self, key: str, findings: list[dict[str, str]]) -> None:
        """Note what the doctor said of a cell's model on its rows; an empty list says that all is well."""
        number, _ = self._cell(key)
        self._write("UPDATE cells SET findings = ? WHERE id = ?", json.dumps(findings), number)

    def findings(self) -> dict[str, list[dict[str, str]]]:
        """Return what the doctor said, by cell key; cells that it was not asked about are not in it."""
        found = self._ask("SELECT key, findings FROM cells WHERE findings IS NOT NULL ORDER BY id")
        try:
            return {key: json.loads(text) for key, text in found}
        except (ValueError, TypeError) as error:
            raise self._damaged("the doctor's findings", None, error) from error

    def supersede(self, key: str, by: str) -> None:
        """Mark a cell as replaced by another one, whose model answers differently."""
        self._write("UPDATE cells SET superseded_by = ? WHERE id = ?", by, self._cell(key)[0])

    def superseded(self) -> dict[str, str]:
        """Return the cells that others replace, with the keys of those."""
        return dict(self._ask("SELECT key, superseded_by FROM cells WHERE superseded_by IS NOT NULL"))

    def note_progress(self, state: dict[str, Any]) -> None:
        """Note how far the run at work is, for others to see; see `progress`."""
        self._note("progress", json.dumps(state))

    def progress(self) -> dict[str, Any]:
        """Return how far the run is that writes here now, as `bench.progress` tells it; nothing where none does."""
        if self._lock is None and not is_held(self.path):
            return {}
        try:
            return dict(json.loads(self._noted("progress") or "{}"))
        except (ValueError, TypeError) as error:
            raise self._damaged("the progress", None, error) from error

    def writer(self) -> str | None:
        """Return the process that writes here now, in words."""
        return self._noted("writer") if is_held(self.path) else None

    # Samples ---------------------------------------------------------------------------------------------------------

    def append(
        self,
        key: str,
        positions: int | Sequence[int] | NDArray[Any],
        facts: Facts,
        *,
        run: int,
        peak_device: int | None = None,
        peak_process: int | None = None,
    ) -> None:
        """Store a batch of a cell's samples; those that are stored already stay as they are.

        positions   where the rows stand in the cell: the first, if they follow each other, or all of them
        """
        number, info = self._cell(key)
        if isinstance(positions, int | np.integer):
            positions = np.arange(positions, positions + len(facts))
        places = np.asarray(positions)
        if places.shape != (len(facts),) or (len(places) and places.dtype.kind not in "iu"):
            raise ValueError(f"facts of {len(facts)} rows need as many positions, or the first one; got {positions!r}")
        if not len(places):
            return
        if places.min() < 0 or places.max() >= info.rows:
            raise StoreError(f"cell {key[:12]} has {info.rows} rows; {places.min()} to {places.max()} do not fit")
        if len(np.unique(places)) < len(places):
            raise ValueError(f"the positions {positions!r} name a row twice; give each row once")
        rows, first = _rows(places.tolist(), facts), int(places.min())
        with self._transaction(), explained(self.path):
            self._base.executemany(
                f"INSERT OR IGNORE INTO samples VALUES ({', '.join('?' * (len(VALUES) + 5))})",
                [(number, row[0], run, first, *row[1:], checksum(key, row)) for row in rows],
            )
            if (peak_device, peak_process) != (None, None):
                self._base.execute(REMEMBER.format("VALUES (?, ?, ?, ?)"), (number, run, peak_device, peak_process))

    def positions(self, key: str) -> Integers:
        """Return the positions of the samples that `facts` gives, in the same order."""
        found = self._ask("SELECT position FROM samples WHERE cell = ? ORDER BY position", self._cell(key)[0])
        return np.fromiter((place for (place,) in found), np.int64, len(found))

    def stored(self, key: str) -> NDArray[np.bool_]:
        """Return which positions of a cell have their facts, as a mask."""
        done = np.zeros(self.cell(key).rows, np.bool_)
        try:
            done[self.positions(key)] = True
        except IndexError as error:
            raise self._damaged("its samples", key, error) from error
        return done

    def facts(self, key: str, perturbations: bool = True) -> Facts:
        """Return what is stored of a cell, in the order of its rows; without perturbations all seem unchanged."""
        names = ", ".join(VALUES if perturbations else COLUMNS)
        query = f"SELECT {names} FROM samples WHERE cell = ? ORDER BY position"
        number, _ = self._cell(key)
        parts = []
        with explained(self.path):
            found = self._base.execute(query, (number,))
            while rows := found.fetchmany(CHUNK):
                try:
                    parts.append(_facts(rows, perturbations))
                except (ValueError, TypeError, OverflowError) as error:
                    raise self._damaged("its samples", key, error) from error
        return Facts.join(parts)

    def batches(self, key: str) -> list[tuple[Integers, dict[str, Any]]]:
        """Return the positions of each batch of a cell, and the provenance of the run that made it."""
        found: dict[tuple[int, int], list[int]] = {}
        for run, batch, place in self._ask(
            "SELECT run, batch, position FROM samples WHERE cell = ? ORDER BY position", self._cell(key)[0]
        ):
            found.setdefault((run, batch), []).append(place)
        runs = {run: json.loads(text) for run, text in self._ask("SELECT id, provenance FROM runs")}
        return [(np.array(places), runs.get(run, {})) for (run, _), places in found.items()]

    # Traces and arrays -----------------------------------------------------------------------------------------------

    def append_trace(self, key: str, position: int, trace: Trace) -> None:
        """Keep what a search asked about the cell's row at a position, in place of an older trace of it."""
        number, info = self._cell(key)
        if not 0 <= position < info.rows:
            raise StoreError(f"cell {key[:12]} has {info.rows} rows; a trace of row {position} does not fit")
        npz = _npz({name: value for name, value in vars(trace).items() if value is not None})
        self._write("REPLACE INTO traces VALUES (?, ?, ?)", number, position, npz)

    def traced(self, key: str) -> NDArray[np.bool_]:
        """Return which positions of a cell have a trace, as a mask."""
        number, info = self._cell(key)
        done = np.zeros(info.rows, np.bool_)
        done[[place for (place,) in self._ask("SELECT position FROM traces WHERE cell = ?", number)]] = True
        return done

    def trace(self, key: str, position: int) -> Trace:
        """Return what a search asked about the cell's row at a position."""
        number, _ = self._cell(key)
        found = self._ask("SELECT npz FROM traces WHERE cell = ? AND position = ?", number, position)
        if not found:
            raise KeyError(
                f"{self.path} has no trace of row {position} of cell {key[:12]}; write trace = true in its plan"
            )
        try:
            return Trace(**self._arrays(found[0][0], f"the trace of row {position}"))
        except TypeError as error:
            raise self._damaged(f"the trace of row {position}", key, error) from error

    def keep_arrays(self, name: str, **arrays: NDArray[Any]) -> None:
        """Keep arrays that cannot be loaded again (rows, masks, bounds) by the hash of their content; see `arrays`."""
        self._write("INSERT OR IGNORE INTO arrays VALUES (?, ?)", name, _npz(arrays))

    def arrays(self, name: str) -> dict[str, NDArray[Any]] | None:
        """Return the arrays kept under a name; None where there are none."""
        found = self._ask("SELECT npz FROM arrays WHERE name = ?", name)
        return self._arrays(found[0][0], f"the arrays {name[:24]}") if found else None

    def _arrays(self, npz: bytes, what: str) -> dict[str, NDArray[Any]]:
        try:
            with np.load(io.BytesIO(npz), allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        except UNREADABLE as error:
            raise self._damaged(what, None, error) from error

    def keep_answers(self, key: str, logits: Tensor) -> None:
        """Keep the model's logits for a few clean rows of a cell, to recognise the model by; see `answers`."""
        self.keep_arrays(f"answers {key}", logits=logits.detach().cpu().double().numpy())

    def answers(self, key: str) -> Tensor | None:
        """Return the model's logits for a few clean rows of a cell; None where none were kept."""
        held = self.arrays(f"answers {key}")
        return None if held is None else torch.from_numpy(held["logits"])

    # Proofs ----------------------------------------------------------------------------------------------------------

    def keep_digests(self, data_hash: str, digests: Sequence[str]) -> None:
        """Keep by what each row is found that has this hash together with the others; see `proofs.row_digests`."""
        self.keep_arrays(f"digests {data_hash}", rows=np.array(digests, np.str_))

    def digests(self, data_hash: str) -> list[str] | None:
        """Return the digests of the rows that have this hash together, in their order; None where none were kept."""
        held = self.arrays(f"digests {data_hash}")
        return None if held is None else [str(each) for each in held.get("rows", ())]

    def prove(self, key: ProofKey, proofs: Mapping[str, Proof]) -> None:
        """Keep what is proved of rows, by their digests; a bound that says no more than the one held is left out.

        Refused, all of it, if a cell held here has a verified point below its bound.
        """
        rows = [
            (*key, row, one.least, one.method, one.version, one.seconds) for row, one in proofs.items() if one.least
        ]
        with self._transaction(), explained(self.path):
            self._base.executemany(BOUND.format("VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"), rows)
            for name in self.cell_keys():
                if ProofKey.of_cell(self.cell(name)) == key:
                    self.proved(name)

    def proofs(self, key: ProofKey) -> dict[str, Proof]:
        """Return what is proved about a model, by the digests of the rows."""
        where = "model = ? AND code = ? AND unit = ? AND space = ?"
        found = self._ask(f"SELECT row, least, method, version, seconds FROM proofs WHERE {where}", *key)
        return {row: Proof(*rest) for row, *rest in found}

    def proof_keys(self) -> list[ProofKey]:
        """Return what there are proofs about, in the order of the alphabet."""
        found = self._ask("SELECT DISTINCT model, code, unit, space FROM proofs ORDER BY 1, 2, 3, 4")
        return [ProofKey(*row) for row in found]

    def proved(self, key: str) -> Integers | None:
        """Return for each stored row of a cell the changes that are proved to be needed, in the order of `facts`.

        0 where nothing is proved, None where that is so of all. A verified point below its bound is refused.
        """
        info = self.cell(key)
        about = ProofKey.of_cell(info)
        known = {} if about is None else self.proofs(about)
        if not known or (digests := self.digests(info.data_hash)) is None:
            return None
        if len(digests) != info.rows:
            raise self._damaged("the digests of its rows", key, f"{len(digests)} for {info.rows} rows")
        found = [known.get(digests[place]) for place in self.positions(key)]
        for wrong in contradictions(info, self.facts(key, perturbations=False), found):
            raise StoreError(f"{self.path}: {wrong}")
        return np.array([proof.least if proof else 0 for proof in found], np.int64) if any(found) else None

    # Damage ----------------------------------------------------------------------------------------------------------

    def damage(self) -> list[Flaw]:
        """Return what SQLite finds wrong with the file, and everything that is not as it was written.

        Checksums are made against accidents and careless edits. A sample that was deleted is "not stored yet"; one
        that was forged with a new checksum is noticed only by asking the model again (`sigmazero.bench.verify`).
        """
        checks = (self._broken, self._altered, self._unreadable)
        found: list[Flaw] = []
        for check in checks:
            try:
                found += check()
            except (StoreError, sqlite3.DatabaseError) as error:
                found.append(Flaw(one_line(error)))
        return found

    def _broken(self) -> Iterator[Flaw]:
        for (text,) in self._ask("PRAGMA integrity_check(20)"):
            if text != "ok":
                yield Flaw(f"SQLite finds the file damaged: {text}")
        for (table,) in self._ask('SELECT DISTINCT "table" FROM pragma_foreign_key_check'):
            yield Flaw(f"the table {table} names cells or runs that are not in the store")

    def _altered(self) -> Iterator[Flaw]:
        names = ", ".join(("position", *VALUES, "checksum"))
        for number, key, rows in self._ask("SELECT id, key, rows FROM cells"):
            found, wrong = self._base.execute(f"SELECT {names} FROM samples WHERE cell = ?", (number,)), []
            while chunk := found.fetchmany(CHUNK):
                wrong += [
                    row[0]
                    for row in chunk
                    if checksum(key, row[:-1]) != row[-1] or not isinstance(rows, int) or not 0 <= row[0] < rows
                ]
            if wrong:
                more = f" and {len(wrong) - 1} more" if wrong[1:] else ""
                yield Flaw(f"the sample at position {wrong[0]}{more}: not as written; delete and run again", str(key))

    def _unreadable(self) -> Iterator[Flaw]:
        self.status()
        self.findings()
        for (name,) in self._ask("SELECT name FROM arrays"):
            self.arrays(name)
        for key, place in self._ask("SELECT key, position FROM traces JOIN cells ON id = cell"):
            self.trace(key, place)
        yield from ()


# Samples as rows of the table ----------------------------------------------------------------------------------------


def checksum(key: str, row: tuple[Any, ...]) -> bytes:
    """Return the checksum of a sample: its position, all its values, and the key of the cell it belongs to."""
    *values, changed, became = row
    whole = repr((key, values)).encode(errors="surrogateescape")
    for blob in (changed, became):
        whole += blob if isinstance(blob, bytes) else repr(blob).encode(errors="surrogateescape")
    return blake2b(whole, digest_size=8).digest()


def _rows(positions: list[int], facts: Facts) -> Iterator[tuple[Any, ...]]:
    """Yield position, columns and changes of each sample as SQLite gives them back: NaN is NULL, −0.0 is 0.0."""
    columns: list[list[Any]] = [positions]
    for name, kind in KINDS.items():
        values = getattr(facts, name)
        if kind is np.float64:
            plain = (values + 0.0).tolist()
            columns.append([None if value != value else value for value in plain] if np.isnan(values).any() else plain)
        else:
            columns.append(values.tolist())
    wide = facts.value.dtype.itemsize > 4
    changed, became = facts.index.astype("<u4").tobytes(), facts.value.astype("<f8" if wide else "<f4").tobytes()
    ends, size = facts.offsets.tolist(), 8 if wide else 4
    blobs = [(changed[4 * start : 4 * stop], became[size * start : size * stop]) for start, stop in pairwise(ends)]
    for row, pair in zip(zip(*columns, strict=True), blobs, strict=True):
        yield *row, *pair


def _facts(rows: list[tuple[Any, ...]], perturbations: bool) -> Facts:
    columns = list(zip(*rows, strict=True))
    named: dict[str, Any] = {
        name: np.array(column, KINDS[name]) for name, column in zip(COLUMNS, columns, strict=False)
    }
    changed, became = columns[-2:] if perturbations else ((b"",) * len(rows),) * 2
    counts = np.array([len(blob) // 4 for blob in changed])
    wide = np.array([len(blob) for blob in became]) == 8 * counts
    if wide[counts > 0].any():  # each row has its own width: 4 bytes a value, or 8
        parts = [np.frombuffer(blob, "<f8" if w else "<f4") for blob, w in zip(became, wide, strict=True)]
        value = np.concatenate(parts, dtype=np.float64)
    else:
        value = np.frombuffer(b"".join(became), "<f4").astype(np.float32)
    return Facts(
        **named,
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]),
        index=np.frombuffer(b"".join(changed), "<u4").astype(np.int64),
        value=value,
    )


def _npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _provenance(made: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Join what the runs that filled a cell have in common, lists of values where they differ, and what they took."""
    if not made:
        return {}
    about = [json.loads(text) for text, *_ in made]
    merged: dict[str, Any] = {}
    for name in dict.fromkeys(name for one in about for name in one):
        values: list[Any] = []
        for one in about:
            values += [] if one.get(name) in values else [one.get(name)]
        merged[name] = values[0] if len(values) == 1 else values
    peaks = [[part[place] for part in made if part[place] is not None] for place in (3, 4)]
    return merged | {
        "runs": len(made),
        "seconds": sum(seconds for *_, seconds, _, _ in made),
        "peak_memory_device": max(peaks[0], default=None),
        "peak_memory_process": max(peaks[1], default=None),
    }


UNREADABLE = (ValueError, TypeError, KeyError, OSError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error)

# Statements that merging shares; the braces take what is to be inserted.
REMEMBER = (
    "INSERT INTO memory {} ON CONFLICT (cell, run) DO UPDATE SET "
    "peak_device = max(ifnull(peak_device, excluded.peak_device), ifnull(excluded.peak_device, peak_device)), "
    "peak_process = max(ifnull(peak_process, excluded.peak_process), ifnull(excluded.peak_process, peak_process))"
)
BOUND = (
    "INSERT INTO proofs {} ON CONFLICT (model, code, unit, space, row) DO UPDATE SET least = excluded.least, "
    "method = excluded.method, version = excluded.version, seconds = excluded.seconds WHERE excluded.least > least"
)

# The file ------------------------------------------------------------------------------------------------------------

RESTORE = "restore a copy, or run again into another file (`sqlite3 FILE .recover` saves what it can)"
ADVICE = {
    "malformed": f"the file is damaged: {RESTORE}",
    "not a database": "the file is damaged or no store; restore a copy, or name another file",
    "decode": f"the file is damaged: {RESTORE}",
    "no such": f"the file is a damaged store: {RESTORE}",
    "full": "nothing more can be written (is the disk full?). All finished batches are kept: make room, run again",
    "I/O": "nothing more can be written (is the disk full?). All finished batches are kept: make room, run again",
    "readonly": "it cannot be written; check the rights of the file and its folder",
    "unable to open": "it cannot be opened; check that its folder exists and may be written to",
    "locked": "another process is using it; try again when it has finished",
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Explain SQLite's errors; a transaction that fails is undone, so what was stored before stays."""
    try:
        yield
    except (sqlite3.Error, UnicodeError) as error:
        reason = one_line(error)
        advice = next((text for word, text in ADVICE.items() if word in reason), "what was stored before is kept")
        raise StoreError(f"{path}: {advice} ({reason})") from error


def open_reading(path: Path, *, empty: bool = False) -> sqlite3.Connection:
    """Open a store so that nothing can be changed; it may be read while another process writes. `empty` may it be?"""
    if path.is_dir():
        raise StoreError(f"{path} is a folder; name a file in it, such as {path / 'run.db'}")
    if not path.is_file():
        raise FileNotFoundError(f"there is no store {path}; a run into it makes one")
    with explained(path):
        base = sqlite3.connect(address(path), uri=True, isolation_level=None, timeout=30)
        try:
            if _is_empty(base, path) and not empty:
                raise StoreError(f"{path} is empty: no run has stored anything in it yet")
        except BaseException:
            base.close()
            raise
    return base


def address(path: Path) -> str:
    """Return the address by which SQLite opens a store for reading."""
    # A store at rest in a folder that may not be written to cannot change, and SQLite must be told so.
    frozen = not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if frozen else ''}"


def _open_writing(path: Path) -> sqlite3.Connection:
    with explained(path):
        base = sqlite3.connect(path, isolation_level=None, timeout=30)
        try:
            empty = _is_empty(base, path)
            base.execute("PRAGMA journal_mode=WAL")  # readers see whole batches while we write
            base.execute("PRAGMA synchronous=FULL")  # a committed batch survives a power cut
            if empty:
                base.executescript(f"BEGIN;{SCHEMA}COMMIT;")
        except BaseException:
            base.close()
            raise
    return base


def _is_empty(base: sqlite3.Connection, path: Path) -> bool:
    """Return whether nothing was ever stored in a file; anything but a store of ours is refused."""
    tables = base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    application, version = (base.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    if (tables, application, version) == (0, 0, 0):
        return True  # a new file, or one whose maker was killed before its first commit
    if application != APPLICATION:
        raise StoreError(f"{path} is a SQLite file of another program, no store of sigmazero; name another file")
    if version != VERSION:
        raise StoreError(
            f"{path} was written by another version of sigmazero (its schema is {version}, this one reads {VERSION}); "
            "use that version, or run into another file"
        )
    return False


class WriterLock:
    """Let one process at a time write to a store; the lock ends with the process, however it ends.

    It is the lock of a second, empty SQLite file beside the store: SQLite's locks work on every system, and one on the
    store itself would keep readers out.
    """

    def __init__(self, path: Path, wait: float) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.base = sqlite3.connect(path.with_name(f"{path.name}.lock"), isolation_level=None, timeout=wait)
            self.base.execute("BEGIN EXCLUSIVE")
        except (sqlite3.OperationalError, OSError) as error:
            if "locked" not in str(error):
                raise StoreError(
                    f"{path}: nothing can be written to {path.parent} ({error}); name a store in another folder"
                ) from error
            raise StoreBusy(f"{path} is being written by {_holder(path)}; wait for it to end") from None

    def close(self) -> None:
        """Let the next one in; the empty file stays, because removing it could let two in."""
        self.base.close()


def is_held(path: Path) -> bool:
    """Return whether some process writes to this store now."""
    lock = path.with_name(f"{path.name}.lock")
    if not lock.exists():
        return False
    try:
        with closing(sqlite3.connect(f"{lock.absolute().as_uri()}?mode=ro", uri=True, timeout=0)) as base:
            base.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        return "locked" in str(error)
    return False


def _holder(path: Path) -> str:
    """Return who writes to a store, in words."""
    try:
        with Store(path) as store:
            return store._noted("writer") or "another process"
    except (FileNotFoundError, StoreError):
        return "another process"


def _myself() -> str:
    """Return this process, for the message that another one gets."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container may run as a number without a name
        user = f"user {os.getuid()}"
    began = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"process {os.getpid()} of {user} on {socket.gethostname()} since {began} ({Path(sys.argv[0]).name})"
