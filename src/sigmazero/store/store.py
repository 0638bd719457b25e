"""The store: per-sample facts of every cell, one transaction per finished batch or for several together.

A batch is kept as one blob of narrow columns and one of changes: a table of a million samples is read in moments,
and a report that needs no perturbations never touches them. The store computes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sigmazero.core import faults
from sigmazero.store import database
from sigmazero.store.batches import Packed, pack_facts, pack_places
from sigmazero.store.checksums import blob_sum, put, remove
from sigmazero.store.database import StoreBusy, StoreError
from sigmazero.store.facts import CellInfo, Facts, Integers
from sigmazero.store.pack import pack
from sigmazero.store.proofs import Proof, ProofKey, pack_digests
from sigmazero.store.reading import BatchRow, CellRow, CellStatus, Reader
from sigmazero.store.trace import Trace
from sigmazero.store.waiting import Waiting

__all__ = ["CellStatus", "Store", "StoreBusy", "StoreError"]


class Store(Reader):
    """Facts on disk. Opened for reading unless `write`; then this is the only writer, for as long as it is open.

    wait   seconds to wait for another writer to end before giving up
    """

    def __init__(self, path: str | PathLike[str], *, write: bool = False, wait: float = 0.0) -> None:
        self.path = Path(path)
        self._lock = None
        self._held: dict[str, NDArray[np.bool_]] = {}  # which rows of a cell have their facts, as `_growing` reads it
        self._waiting: Waiting | None = None  # batches of the open transaction that are not written yet
        if not write:
            self._base = database.open_reading(self.path)
            return
        database.recognise(self.path)
        self._make_folder()
        self._lock = database.WriterLock(self.path, wait)
        try:
            self._base = database.open_writing(self.path)
            with self._transaction():
                put(self._base, "writer", None, 1, database.myself())
            database.fold(self._base, self.path)  # what a killed run left in its log
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
            faults.reach("store.closing")
            database.settle(self._base)
        self._base.close()
        if self._lock is not None:
            self._lock.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing; inside another one, a part of it."""
        if self._lock is None:
            raise StoreError(f"{self.path} is open for reading; open it with Store(path, write=True)")
        if self._open_transaction():
            yield
            return
        with database.explained(self.path):
            faults.reach("store.begin")
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._catch_up()
                faults.reach("store.commit")
                self._base.execute("COMMIT")
                faults.reach("store.committed")
            except BaseException:
                self._held.clear()  # what was noted there may be undone
                self._waiting = None
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")
                raise

    def _catch_up(self) -> None:
        """Write the batches that wait."""
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            waiting.write(self._base)

    def _open_transaction(self) -> bool:
        return self._base.in_transaction

    def together(self) -> AbstractContextManager[None]:
        """Store everything that is written inside in one transaction: a commit takes its time, whatever its size."""
        return self._transaction()

    def _next(self, table: str) -> int:
        return int(self._ask(f"SELECT coalesce(max(id), 0) + 1 FROM {table}")[0][0])

    def register(self, cells: Sequence[CellInfo]) -> None:
        """Note which cells there are to be, so that a status can count what has not begun; the newest names hold."""
        with self._transaction():
            for cell in cells:
                found = self._rows("cells", None, "WHERE key = ?", cell.key)
                row = CellRow(*found[0]) if found else CellRow(self._next("cells"), cell.key, "", 0)
                if row.info != (info := cell.text()):
                    put(self._base, "cells", None, *row._replace(info=info))

    def begin(self, provenance: dict[str, Any]) -> int:
        """Note a run (versions, device, commit); its number goes with the batches it appends."""
        run = self._next("runs")
        with self._transaction():
            put(self._base, "runs", None, run, json.dumps(provenance))
        database.fold(self._base, self.path)  # from here on the file alone tells what is to be run
        return run

    def append(
        self,
        key: str,
        positions: int | Sequence[int] | NDArray[Any],
        facts: Facts,
        *,
        run: int,
        seconds: float = 0.0,
        peak_device: int | None = None,
        peak_process: int | None = None,
        packed: Packed | None = None,
    ) -> None:
        """Keep the facts of some of the cell's rows.

        positions   where the rows stand in the cell: the first, if they follow each other, or all of them, rising
        packed      the same facts as `pack_facts` makes them, if somebody has done that already
        """
        places, rows = pack_places(positions, len(facts))
        cell = self._growing(key)
        if not len(places):
            return
        held = self._free(cell, places)
        names, columns, changes = pack_facts(facts) if packed is None else packed
        assert changes is not None
        with self._transaction():
            if self._waiting is None:
                self._waiting = Waiting(self._next("batches"))
            row = BatchRow(
                id=self._waiting.next,
                cell=cell.id,
                start=int(places[0]),
                stop=int(places[-1]) + 1,
                size=len(places),
                places=rows,
                run=run,
                seconds=float(seconds),
                peak_device=peak_device,
                peak_process=peak_process,
                names=names,
                columns_sum=blob_sum(columns),
                changes_sum=blob_sum(changes),
            )
            self._waiting.add(cell, row, columns, changes)
            held[places] = True

    def _growing(self, key: str) -> CellRow:
        """A cell that is to get another batch, as it is with those that wait."""
        if self._waiting is not None and (cell := self._waiting.cell(key)) is not None:
            return cell
        others, self._waiting = self._waiting, None  # nothing of this cell waits, so the others may go on waiting
        try:
            cell = self._cell(key)
            if key not in self._held:
                self._held[key] = self.stored(key)  # read once: nobody else writes here
            return cell
        finally:
            self._waiting = others

    def _free(self, cell: CellRow, places: Integers) -> NDArray[np.bool_]:
        """Which rows of a cell have their facts; positions among them, and those outside the cell, are refused."""
        held, start, stop = self._held[cell.key], int(places[0]), int(places[-1]) + 1
        if start < 0 or stop > len(held):
            raise StoreError(f"cell {cell.key[:12]} has {len(held)} rows; {start} up to {stop} do not fit")
        if (twice := places[held[places]]).size:
            raise StoreError(f"row {twice[0]} of cell {cell.key[:12]} is stored already; nothing is stored twice")
        return held

    def append_trace(self, key: str, position: int, trace: Trace) -> None:
        """Keep what a search asked about the cell's row at a position, in place of an older trace of it."""
        cell = self._cell(key)
        if not 0 <= position < (rows := self._parse(cell).rows):
            raise StoreError(f"cell {key[:12]} has {rows} rows; a trace of row {position} does not fit")
        with self._transaction():
            put(self._base, "traces", key, cell.id, position, trace.pack())

    def fail(self, key: str, error: str, span: tuple[int, int] | None = None, tries: int = 1) -> None:
        """Note why some rows of a cell could not be run, by default all that it lacks; see `retry`."""
        cell = self._cell(key)
        start, stop = span or (0, self._parse(cell).rows)
        with self._transaction():
            put(self._base, "failures", key, cell.id, int(start), int(stop), tries, error)

    def retry(self, key: str) -> None:
        """Forget the failures of a cell, since it is run again."""
        cell = self._cell(key)
        if not self._ask("SELECT 1 FROM failures WHERE cell = ?", cell.id):
            return
        with self._transaction():
            remove(self._base, "failures", cell.id)

    def note_progress(self, state: dict[str, Any]) -> None:
        """Note how far the run at work is, for others to see; see `progress`."""
        with self._transaction():
            put(self._base, "progress", None, 1, json.dumps(state))

    def diagnose(self, key: str, findings: list[dict[str, str]]) -> None:
        """Note what the doctor said of a cell's model on its rows; an empty list says that all is well."""
        cell = self._cell(key)
        with self._transaction():
            put(self._base, "doctor", key, cell.id, json.dumps(findings))

    def keep_answers(self, key: str, logits: Tensor) -> None:
        """Keep the model's logits for a few clean rows of a cell, to recognise the model by; see `answers`."""
        cell, flat = self._cell(key), logits.detach().cpu().double()
        with self._transaction():
            packed = pack([np.array(flat.shape), flat.flatten().numpy()], compress=True)
            put(self._base, "answers", key, cell.id, packed)

    def keep_inputs(self, content_hash: str, rows: bytes) -> None:
        """Keep inputs that cannot be loaded again, by the hash of their content; see `inputs`."""
        with self._transaction():
            put(self._base, "inputs", None, content_hash, rows)

    def keep_digests(self, data_hash: str, digests: Sequence[str]) -> None:
        """Keep by what each row is found that has this hash together with the others; see `proofs.row_digests`."""
        with self._transaction():
            put(self._base, "digests", None, data_hash, pack_digests(digests))

    def prove(self, key: ProofKey, proofs: Mapping[str, Proof]) -> None:
        """Keep what is proved of rows, by their digests; a bound that says no more than the one held is left out.

        Refused, all of it, if a cell held here has a verified point below its bound.
        """
        held = self.proofs(key)
        with self._transaction():
            for row, proof in proofs.items():
                if proof.least > (held[row].least if row in held else 0):
                    put(self._base, "proofs", None, *key, row, proof.least, proof.method, proof.version, proof.seconds)
            for info in self.cells():
                if ProofKey.of_cell(info) == key:
                    self.proved(info.key)
