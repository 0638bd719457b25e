"""Merge stores: every sample that one of them has, with the run that made it.

Each store is attached and copied by SQL, so the time grows with the number of samples alone. If two runs have the same
sample, that of the first store stays and the others are counted: two machines may round differently. One run with two
values for a sample is an error, and so are two models that answer differently under one key.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from sigmazero.core.files import replacing, same_file, writable
from sigmazero.store.facts import CellInfo, same_answers
from sigmazero.store.file import StoreBusy, StoreError, WriterLock, address, explained, open_reading
from sigmazero.store.store import CELL, PROVE, SCHEMA, VALUES, Store

# The samples of the attached store (o), with their cells (c) and runs (r) here.
THEIRS = (
    "FROM taken c JOIN other.cells oc ON oc.key = c.key CROSS JOIN other.samples o ON o.cell = oc.id "
    "JOIN other.runs orun ON orun.id = o.run JOIN runs r ON r.name = orun.name "
)
BOTH = f"{THEIRS} JOIN samples m ON m.cell = c.id AND m.position = o.position "  # those that are here (m) already
SAME = " AND ".join(f"m.{name} IS o.{name}" for name in VALUES if name != "seconds")
DONE = "(SELECT count(*) FROM samples WHERE cell = failures.cell AND position >= start AND position < stop)"


@dataclass(frozen=True)
class Repeated:
    """Samples of a cell that were left out, since another run had them first; `differ` have other results."""

    store: Path
    key: str
    rows: int
    differ: int

    def __str__(self) -> str:
        """Name the cell, the store and the numbers."""
        return (
            f"{self.store}, cell {self.key[:12]}: left out {self.rows} rows that another run stored first "
            f"({self.differ} of them differ)"
        )


@dataclass
class Merged:
    """The contents of a merged store: cells, rows, rows that are still to be run, and repeated rows."""

    cells: int = 0
    rows: int = 0
    lacking: int = 0
    repeated: list[Repeated] = field(default_factory=list)


def merge(paths: Sequence[Path], new: Path, keys: Collection[str] | None = None) -> Merged:
    """Write the contents of some stores to one, and keep what it has already. It is written whole or not at all.

    keys   copy these cells alone
    """
    if both := next((path for path in paths if same_file(path, new)), None):
        raise StoreError(f"{both} is to be read and to be written; name another file for what is merged")
    writable(new)
    _check(paths, new)
    with _alone(new), replacing(new) as part:
        done = Merged()
        with explained(new), closing(_copy(new, part)) as base:
            for path in paths:
                _take(base, path, keys, done)
        with Store(part) as whole:
            for status in whole.status():
                done.cells, done.rows = done.cells + 1, done.rows + status.done
                done.lacking += status.cell.rows - status.done
                whole.proved(status.cell.key)  # raises if a point of one store is below a bound of another
        with part.open("rb+") as file:
            os.fsync(file.fileno())
    return done


def _check(paths: Sequence[Path], new: Path) -> None:
    """Refuse a store that is being written or damaged, and stores whose models answer differently in the same cell."""
    known: dict[str, Tensor] = {}
    for path in [*([new] if new.exists() else []), *paths]:
        with Store(path) as store:
            if path != new and (writer := store.writer()):
                raise StoreBusy(f"{path} is being written by {writer}; wait for it to end")
            if path != new and (flaws := store.damage()):
                raise StoreError(f"{path}: {flaws[0].what}")
            for key in store.cell_keys():
                answers = store.answers(key)
                if answers is not None and not same_answers(known.setdefault(key, answers), answers):
                    what = f"cell {key[:12]}: its model answers differently in {path} than in another store"
                    raise StoreError(f"{what}; merge without one of them")


@contextmanager
def _alone(new: Path) -> Iterator[None]:
    """Keep other writers out of the new store, after adding the log of a killed writer to it."""
    if new.exists():
        Store(new, write=True).close()
        if new.with_name(f"{new.name}-wal").exists():
            raise StoreBusy(f"{new} is being read by another process; wait for it to end")
    with closing(WriterLock(new)):
        yield


def _copy(new: Path, part: Path) -> sqlite3.Connection:
    """Open a copy of a store, or an empty one. It is not safe from crashes until it is complete."""
    base = sqlite3.connect(f"{part.absolute().as_uri()}?mode=rwc", uri=True, isolation_level=None)
    base.execute("PRAGMA synchronous=OFF")
    if new.exists():
        with closing(open_reading(new)) as old:
            old.backup(base)
    else:
        base.executescript(SCHEMA)
    return base


def _take(base: sqlite3.Connection, path: Path, keys: Collection[str] | None, done: Merged) -> None:
    """Copy what a store has and this one lacks."""
    base.execute("ATTACH ? AS other", (address(path),))
    base.execute("BEGIN")
    _take_cells(base, keys)
    base.execute("INSERT OR IGNORE INTO runs (name, provenance) SELECT name, provenance FROM other.runs ORDER BY id")
    for key, position in base.execute(
        f"SELECT c.key, o.position {BOTH} WHERE m.run = r.id AND m.checksum IS NOT o.checksum LIMIT 1"
    ):
        raise StoreError(f"cell {key[:12]}: one run has two values for row {position}; merge without {path}")
    for key, rows, differ in base.execute(
        f"SELECT c.key, count(*), total(NOT ({SAME})) {BOTH} WHERE m.run <> r.id GROUP BY c.id"
    ):
        done.repeated.append(Repeated(path, key, rows, int(differ)))
    names = ", ".join(f"o.{name}" for name in ("batch", *VALUES, "checksum", "peak_device"))
    base.execute(f"INSERT OR IGNORE INTO samples SELECT c.id, o.position, r.id, {names} {THEIRS}")
    for table, columns in (("failures", "o.start, o.stop, o.tries, o.error"), ("traces", "o.position, o.npz")):
        base.execute(
            f"INSERT OR IGNORE INTO {table} SELECT c.id, {columns} FROM other.{table} o "
            "JOIN other.cells oc ON oc.id = o.cell JOIN taken c ON c.key = oc.key"
        )
    base.execute(f"DELETE FROM failures WHERE {DONE} = stop - start")
    if keys is None:
        base.execute(PROVE.format("SELECT * FROM other.proofs WHERE true"))
    base.execute("DROP TABLE taken")
    base.execute("COMMIT")
    base.execute("DETACH other")


def _take_cells(base: sqlite3.Connection, keys: Collection[str] | None) -> None:
    """Copy cells and their arrays, list them in `taken`, and unite the doctor's findings."""
    names = ", ".join((*CELL, "findings", "superseded_by"))
    chosen = "true" if keys is None else "key IN (SELECT value FROM json_each(:keys))"
    base.execute("CREATE TEMP TABLE taken (id INTEGER PRIMARY KEY, key TEXT)")
    for number, mine, theirs in base.execute(
        "SELECT c.id, c.findings, o.findings FROM cells c JOIN other.cells o ON o.key = c.key "
        "WHERE o.findings IS NOT NULL AND o.findings IS NOT c.findings"
    ).fetchall():
        ours = json.loads(mine or "[]")
        united = ours + [one for one in json.loads(theirs) if one not in ours]
        base.execute("UPDATE cells SET findings = ? WHERE id = ?", (json.dumps(united), number))
    base.execute(
        "UPDATE cells SET superseded_by = (SELECT o.superseded_by FROM other.cells o WHERE o.key = cells.key) "
        "WHERE superseded_by IS NULL"
    )
    only = {"keys": json.dumps(list(keys or ()))}
    base.execute(
        f"INSERT OR IGNORE INTO cells ({names}) SELECT {names} FROM other.cells WHERE {chosen} ORDER BY id", only
    )
    base.execute(
        f"INSERT INTO taken SELECT id, key FROM cells WHERE {chosen} AND key IN (SELECT key FROM other.cells)", only
    )
    if keys is None:
        base.execute("INSERT OR IGNORE INTO arrays SELECT * FROM other.arrays")
        return
    for (text,) in base.execute("SELECT info FROM cells JOIN taken USING (id)").fetchall():
        for name in CellInfo.parse(text).arrays:
            base.execute("INSERT OR IGNORE INTO arrays SELECT * FROM other.arrays WHERE name = ?", (name,))
