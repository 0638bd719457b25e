"""The store: per-sample facts of every cell, one transaction per finished batch.

A batch is kept as one blob of narrow columns and one of changes: a table of a million samples is read in moments,
and a report that needs no perturbations never touches them. The store computes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sigmazero.store import database
from sigmazero.store.database import StoreBusy, StoreError
from sigmazero.store.facts import COLUMNS, KINDS, CellInfo, Facts
from sigmazero.store.pack import pack, pack_indices, unpack, unpack_indices
from sigmazero.store.trace import Trace

__all__ = ["CellStatus", "Store", "StoreBusy", "StoreError"]

State = Literal["done", "running", "begun", "waiting", "failed"]


@dataclass(frozen=True)
class CellStatus:
    """How far a cell is; `seconds` is what its stored rows took."""

    cell: CellInfo
    done: int
    seconds: float
    error: str | None
    state: State


class Store:
    """Facts on disk. Opened for reading unless `write`; then this is the only writer, for as long as it is open.

    wait   seconds to wait for another writer to end before giving up
    """

    def __init__(self, path: str | PathLike[str], *, write: bool = False, wait: float = 0.0) -> None:
        self.path = Path(path)
        self._lock: database.WriterLock | None = None
        if not write:
            self._base = database.open_reading(self.path)
            return
        if self.path.is_dir():
            raise StoreError(f"{self.path} is a folder; name a file in it, such as {self.path / 'run.db'}")
        self._make_folder()
        self._lock = database.WriterLock(self.path, wait)
        try:
            self._base = database.open_writing(self.path)
            with self._transaction():
                self._base.execute("INSERT OR REPLACE INTO writer VALUES (1, ?)", (database.myself(),))
        except BaseException:
            self._lock.close()
            raise

    def _make_folder(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self.path}: the folder {self.path.parent} cannot be made ({error})") from error

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish; what was appended is on disk already."""
        if self._lock is not None:
            database.settle(self._base)
        self._base.close()
        if self._lock is not None:
            self._lock.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing."""
        if self._lock is None:
            raise StoreError(f"{self.path} is open for reading; open it with Store(path, write=True)")
        with database.explained(self.path):
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._base.execute("COMMIT")
            except BaseException:
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")
                raise

    def _ask(self, question: str, *values: Any) -> list[Any]:
        with database.explained(self.path):
            return self._base.execute(question, values).fetchall()

    # Writing ---------------------------------------------------------------------------------------------------------

    def register(self, cells: list[CellInfo]) -> None:
        """Note which cells there are to be, so that a status can count what has not begun; the newest names hold."""
        rows = [(cell.key, json.dumps(_plain(cell), sort_keys=True)) for cell in cells]
        with self._transaction():
            self._base.executemany(
                "INSERT INTO cells (key, info) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET info = excluded.info", rows
            )

    def begin(self, provenance: dict[str, Any]) -> int:
        """Note a run (versions, device, commit); its number goes with the batches it appends."""
        with self._transaction():
            done = self._base.execute("INSERT INTO runs (provenance) VALUES (?)", (json.dumps(provenance),))
        assert done.lastrowid is not None
        return done.lastrowid

    def append(
        self,
        key: str,
        start: int,
        facts: Facts,
        *,
        run: int,
        seconds: float = 0.0,
        peak_device: int | None = None,
        peak_process: int | None = None,
    ) -> None:
        """Keep the facts of the cell's rows from position `start` on; a failure noted before is forgotten."""
        columns = pack([getattr(facts, name) for name in COLUMNS])
        changes = pack([*pack_indices(facts.offsets, facts.index), facts.value], compress=True)
        cell, info, _ = self._cell(key)
        if start < 0 or start + len(facts) > info.rows:
            raise StoreError(f"cell {key[:12]} has {info.rows} rows; {start} to {start + len(facts)} do not fit")
        with self._transaction():
            twice = self._base.execute(
                "SELECT start FROM batches WHERE cell = ? AND start < ? AND start + count > ?",
                (cell, start + len(facts), start),
            ).fetchone()
            if twice:
                raise StoreError(f"rows {start} to {start + len(facts)} of cell {key[:12]} are stored already, in part")
            done = self._base.execute(
                "INSERT INTO batches (cell, start, count, run, seconds, peak_device, peak_process) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (cell, start, len(facts), run, seconds, peak_device, peak_process),
            )
            self._base.execute("INSERT INTO facts VALUES (?, ?, ?)", (done.lastrowid, columns, changes))
            self._base.execute("UPDATE cells SET error = NULL WHERE id = ?", (cell,))

    def append_trace(self, key: str, position: int, trace: Trace) -> None:
        """Keep what a search asked about the cell's row at a position, in place of an older trace of it."""
        cell, info, _ = self._cell(key)
        if not 0 <= position < info.rows:
            raise StoreError(f"cell {key[:12]} has {info.rows} rows; a trace of row {position} does not fit")
        with self._transaction():
            self._base.execute("INSERT OR REPLACE INTO traces VALUES (?, ?, ?)", (cell, position, trace.pack()))
            self._base.execute("UPDATE cells SET error = NULL WHERE id = ?", (cell,))

    def fail(self, key: str, error: str) -> None:
        """Note why a cell could not be run to its end."""
        cell, _, _ = self._cell(key)
        with self._transaction():
            self._base.execute("UPDATE cells SET error = ? WHERE id = ?", (error, cell))

    def diagnose(self, key: str, findings: list[dict[str, str]]) -> None:
        """Note what the doctor said of a cell's model on its rows; an empty list says that all is well."""
        cell, _, _ = self._cell(key)
        with self._transaction():
            self._base.execute("INSERT OR REPLACE INTO doctor VALUES (?, ?)", (cell, json.dumps(findings)))

    def keep_inputs(self, content_hash: str, rows: bytes) -> None:
        """Keep inputs that cannot be loaded again, by the hash of their content; see `inputs`."""
        with self._transaction():
            self._base.execute("INSERT OR IGNORE INTO inputs VALUES (?, ?)", (content_hash, rows))

    # Reading ---------------------------------------------------------------------------------------------------------

    def _cell(self, key: str) -> tuple[int, CellInfo, str | None]:
        found = self._ask("SELECT id, info, error FROM cells WHERE key = ?", key)
        if not found:
            raise KeyError(f"{self.path} has no cell {key!r}; sigmazero status {self.path} lists them")
        return found[0][0], CellInfo(**json.loads(found[0][1])), found[0][2]

    def cells(self) -> list[CellInfo]:
        """Every cell, in the order they were registered, with the provenance of what is stored of it."""
        made: dict[int, list[tuple[Any, ...]]] = {}
        for cell, *rest in self._ask(
            "SELECT cell, run, sum(seconds), max(peak_device), max(peak_process) FROM batches "
            "GROUP BY cell, run ORDER BY cell, run"
        ):
            made.setdefault(cell, []).append(tuple(rest))
        runs = {run: json.loads(text) for run, text in self._ask("SELECT id, provenance FROM runs")}
        return [
            replace(CellInfo(**json.loads(info)), provenance=_provenance(made.get(cell, []), runs))
            for cell, info in self._ask("SELECT id, info FROM cells ORDER BY id")
        ]

    def facts(self, key: str, perturbations: bool = True) -> Facts:
        """What is stored of a cell, in the order of its rows; without perturbations every row seems unchanged."""
        cell, _, _ = self._cell(key)
        wanted = "columns, changes" if perturbations else "columns"
        blobs = self._ask(
            f"SELECT {wanted} FROM batches JOIN facts ON facts.batch = batches.id WHERE cell = ? ORDER BY start", cell
        )
        if not blobs:
            return Facts.empty()
        try:
            return _facts(blobs, perturbations)
        except ValueError as error:
            raise StoreError(f"{self.path}, cell {key[:12]}: {error}") from error

    def findings(self) -> dict[str, list[dict[str, str]]]:
        """What the doctor said, by cell key; cells that it was not asked about are not in it."""
        if not self._ask("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'doctor'"):
            return {}
        found = self._ask("SELECT key, findings FROM doctor JOIN cells ON cells.id = doctor.cell ORDER BY cells.id")
        return {key: json.loads(text) for key, text in found}

    def inputs(self, content_hash: str) -> bytes | None:
        """Inputs kept under a hash, packed; None where there are none."""
        if not self._ask("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'inputs'"):
            return None
        found = self._ask("SELECT rows FROM inputs WHERE hash = ?", content_hash)
        return bytes(found[0][0]) if found else None

    def stored(self, key: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which positions of a cell have their facts."""
        cell, info, _ = self._cell(key)
        done = np.zeros(info.rows, np.bool_)
        for start, count in self._ask("SELECT start, count FROM batches WHERE cell = ?", cell):
            done[start : start + count] = True
        return done

    def traced(self, key: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which positions of a cell have a trace."""
        cell, info, _ = self._cell(key)
        done = np.zeros(info.rows, np.bool_)
        if self._ask("SELECT 1 FROM sqlite_master WHERE name = 'traces'"):  # older stores have none
            for (position,) in self._ask("SELECT position FROM traces WHERE cell = ?", cell):
                done[position] = True
        return done

    def trace(self, key: str, position: int) -> Trace:
        """What a search asked about the cell's row at a position."""
        if not 0 <= position < len(done := self.traced(key)) or not done[position]:
            raise KeyError(
                f"{self.path} has no trace of row {position} of cell {key[:12]}; write trace = true in its plan"
            )
        cell, _, _ = self._cell(key)
        ((blob,),) = self._ask("SELECT points FROM traces WHERE cell = ? AND position = ?", cell, position)
        try:
            return Trace.unpack(blob)
        except ValueError as error:
            raise StoreError(f"{self.path}, cell {key[:12]}: {error}") from error

    def status(self) -> list[CellStatus]:
        """How far every cell is; one is running if it has begun, is not done, and some process writes here."""
        cells = {cell.key: cell for cell in self.cells()}
        rows = self._ask(
            "SELECT key, error, coalesce(sum(count), 0), coalesce(sum(seconds), 0), max(batches.id) "
            "FROM cells LEFT JOIN batches ON batches.cell = cells.id GROUP BY cells.id ORDER BY cells.id"
        )
        held = self._lock is not None or database.is_held(self.path)
        latest = max((last for *_, last in rows if last is not None), default=None)

        def state(rows: int, error: str | None, done: int, last: int | None) -> State:
            if error is not None:
                return "failed"
            if done >= rows:
                return "done"
            return "waiting" if not done else "running" if held and last == latest else "begun"

        return [
            CellStatus(cells[key], done, seconds, error, state(cells[key].rows, error, done, last))
            for key, error, done, seconds, last in rows
        ]

    def writer(self) -> str | None:
        """The process that writes here now, in words."""
        return database.holder(self.path) if database.is_held(self.path) else None


def _plain(cell: CellInfo) -> dict[str, Any]:
    return {name: value for name, value in asdict(cell).items() if name != "provenance"}


def _facts(blobs: list[tuple[bytes, ...]], perturbations: bool) -> Facts:
    parts = [unpack(blob[0]) for blob in blobs]
    if any(len(part) != len(COLUMNS) for part in parts):
        raise ValueError(f"a batch has not the {len(COLUMNS)} columns it should have; the store is damaged")
    columns: dict[str, Any] = {
        name: np.concatenate([part[i] for part in parts], dtype=KINDS[name], casting="unsafe")
        for i, name in enumerate(COLUMNS)
    }
    count = len(columns["row"])
    if not perturbations:
        nothing: dict[str, Any] = {"index": np.zeros(0, np.int64), "value": np.zeros(0, np.float32)}
        return Facts(**columns, offsets=np.zeros(count + 1, np.int64), **nothing)
    changes = [unpack(blob[1]) for blob in blobs]
    pairs = [unpack_indices(lengths.astype(np.int64), steps.astype(np.int64)) for lengths, steps, _ in changes]
    lengths = np.concatenate([np.diff(offsets) for offsets, _ in pairs])
    kind = np.float64 if any(value.dtype == np.float64 for *_, value in changes) else np.float32
    return Facts(
        **columns,
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        index=np.concatenate([index for _, index in pairs]),
        value=np.concatenate([value for *_, value in changes], dtype=kind, casting="unsafe"),
    )


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
