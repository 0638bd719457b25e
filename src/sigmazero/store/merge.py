"""Merge stores: every sample that one of them has, with the run that made it.

Each store is attached and taken over by SQL, so the time grows with the number of samples alone. Where two stores have
a sample from two runs, the first store's is kept and the others are counted: two machines may round differently. One
run with two values for a sample is an error.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sigmazero.core.files import replacing, same_file, writable
from sigmazero.store.store import (
    ABOUT,
    BOUND,
    REMEMBER,
    SCHEMA,
    VALUES,
    Store,
    StoreBusy,
    StoreError,
    WriterLock,
    address,
    explained,
    open_reading,
)

# Of every sample of the attached store: its cell here (c), its run here (r), and the sample held here already (m).
THEIRS = (
    "FROM other.cells oc JOIN cells c ON c.key = oc.key CROSS JOIN other.samples o ON o.cell = oc.id "
    "JOIN other.runs orun ON orun.id = o.run JOIN runs r ON r.name = orun.name "
)
BOTH = f"{THEIRS} JOIN samples m ON m.cell = c.id AND m.position = o.position "
SAME = " AND ".join(f"m.{name} IS o.{name}" for name in VALUES if name != "seconds")
DONE = "(SELECT count(*) FROM samples s WHERE s.cell = {0} AND s.position >= {1} AND s.position < {2}) = {2} - {1}"


@dataclass(frozen=True)
class Repeated:
    """Samples of a cell that a store has from another run than the one kept; `differ` of them have other results."""

    store: Path
    key: str
    rows: int
    differ: int

    def __str__(self) -> str:
        """Name the cell, the store and the numbers."""
        return (
            f"{self.store}, cell {self.key[:12]}: {self.rows} rows are here from another run already and were left out"
            f" ({self.differ} of them with other results)"
        )


@dataclass
class Merged:
    """Count what a merged store has: cells, rows, rows of these cells that are still to be run, and repeated ones."""

    cells: int = 0
    rows: int = 0
    lacking: int = 0
    repeated: list[Repeated] = field(default_factory=list)


def merge(paths: Sequence[Path], new: Path) -> Merged:
    """Write what some stores have to one; what it has already, if it exists, stays. It is written whole or not."""
    if both := next((path for path in paths if same_file(path, new)), None):
        raise StoreError(f"{both} is to be read and to be written; name another file for what is merged")
    writable(new)
    for path in paths:
        _refuse_unfit(path)
    with _alone(new), replacing(new) as part:
        done = Merged()
        with explained(new), closing(_copy(new, part)) as base:
            for path in paths:
                _take(base, path, done)
            whole = Store.over(new, base)
            for status in whole.status():
                done.cells, done.rows = done.cells + 1, done.rows + status.done
                done.lacking += status.cell.rows - status.done
                whole.proved(status.cell.key)  # a point of one store may be below what another has a proof of
        with part.open("rb+") as file:
            os.fsync(file.fileno())
    return done


def _refuse_unfit(path: Path) -> None:
    """Refuse a store that is being filled, and one that is not as it was written."""
    with Store(path) as store:
        if who := store.writer():
            raise StoreBusy(f"{path} is being written by {who}; wait for it to end")
        if flaws := store.damage():
            raise StoreError(f"{path}: {flaws[0].what}; restore a copy, or run again what is damaged")


@contextmanager
def _alone(new: Path) -> Iterator[None]:
    """Keep other writers out of the new store; one that is there is closed in order first."""
    if new.exists():
        Store(new, write=True).close()
        if new.with_name(f"{new.name}-wal").exists():
            raise StoreBusy(f"{new} is being read by another process; wait for it to end")
    with closing(WriterLock(new, 0.0)):
        yield


def _copy(new: Path, part: Path) -> sqlite3.Connection:
    """Open a copy of a store, or an empty one; it need not survive a crash before it takes its place."""
    base = sqlite3.connect(f"{part.absolute().as_uri()}?mode=rwc", uri=True, isolation_level=None)
    base.execute("PRAGMA synchronous=OFF")
    if new.exists():
        with closing(open_reading(new)) as old:
            old.backup(base)
    else:
        base.executescript(SCHEMA)
    return base


def _take(base: sqlite3.Connection, path: Path, done: Merged) -> None:
    """Take over all that a store has and this one lacks."""
    base.execute("ATTACH ? AS other", (address(path),))
    base.execute("BEGIN")
    _take_cells(base, path)
    base.execute("INSERT OR IGNORE INTO runs (name, provenance) SELECT name, provenance FROM other.runs ORDER BY id")
    for key, position in base.execute(
        f"SELECT c.key, o.position {BOTH} WHERE m.run = r.id AND m.checksum IS NOT o.checksum LIMIT 1"
    ):
        raise StoreError(f"cell {key[:12]}: one run has two values for row {position}; merge without {path}")
    for key, rows, differ in base.execute(
        f"SELECT c.key, count(*), total(NOT ({SAME})) {BOTH} WHERE m.run <> r.id GROUP BY c.id"
    ):
        done.repeated.append(Repeated(path, key, rows, int(differ)))
    names = ", ".join(f"o.{name}" for name in ("batch", *VALUES, "checksum"))
    base.execute(f"INSERT OR IGNORE INTO samples SELECT c.id, o.position, r.id, {names} {THEIRS}")
    cell = "FROM other.{0} o JOIN other.cells oc ON oc.id = o.cell JOIN cells c ON c.key = oc.key"
    known = "JOIN other.runs orun ON orun.id = o.run JOIN runs r ON r.name = orun.name"
    base.execute(
        REMEMBER.format(f"SELECT c.id, r.id, o.peak_device, o.peak_process {cell.format('memory')} {known} WHERE true")
    )
    base.execute(
        f"INSERT OR IGNORE INTO failures SELECT c.id, o.start, o.stop, o.tries, o.error {cell.format('failures')}"
    )
    base.execute(f"DELETE FROM failures WHERE {DONE.format('failures.cell', 'failures.start', 'failures.stop')}")
    base.execute(f"INSERT OR IGNORE INTO traces SELECT c.id, o.position, o.npz {cell.format('traces')}")
    base.execute("INSERT OR IGNORE INTO arrays SELECT * FROM other.arrays")
    base.execute(BOUND.format("SELECT * FROM other.proofs WHERE true"))
    base.execute("COMMIT")
    base.execute("DETACH other")


def _take_cells(base: sqlite3.Connection, path: Path) -> None:
    """Take over the cells, and unite what the doctor found of those that are in both stores."""
    names = ", ".join((*ABOUT, "findings", "superseded_by"))
    shared = "FROM cells c JOIN other.cells o ON o.key = c.key"
    for key, mine, theirs in base.execute(f"SELECT c.key, c.rows, o.rows {shared} WHERE c.rows <> o.rows"):
        raise StoreError(f"cell {key[:12]} has {theirs} rows in {path} and {mine} elsewhere; merge without it")
    for number, mine, theirs in base.execute(
        f"SELECT c.id, c.findings, o.findings {shared} WHERE o.findings IS NOT NULL AND o.findings IS NOT c.findings"
    ).fetchall():
        held = json.loads(mine or "[]")
        united = held + [one for one in json.loads(theirs) if one not in held]
        base.execute("UPDATE cells SET findings = ? WHERE id = ?", (json.dumps(united), number))
    base.execute(
        "UPDATE cells SET superseded_by = (SELECT o.superseded_by FROM other.cells o WHERE o.key = cells.key) "
        "WHERE superseded_by IS NULL"
    )
    base.execute(f"INSERT OR IGNORE INTO cells ({names}) SELECT {names} FROM other.cells ORDER BY id")
