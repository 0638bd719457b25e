"""The tables of a store, as one step from each schema to the next.

A new store takes every step, beginning with an empty file; an older store takes those it lacks. A step that has been
released is never edited: what changes gets a new one, and a store written before it becomes a fixture of the tests.
"""

import json
import sqlite3
import time
from collections.abc import Callable

from sigmazero.store import checksums
from sigmazero.store.checksums import SIZE, TABLES

APPLICATION = 0x516D615A  # marks a SQLite file as ours
Migration = Callable[[sqlite3.Connection], None]

# Where the code went that stored cells name as the origin of a model or of rows.
MOVED = {
    "sigmazero.bench.nearest_mean:": "sigmazero.models.toys.nearest_mean:",
    "sigmazero.bench.two_dimensions:": "sigmazero.models.toys.two_dimensions:",
}


def _tables(base: sqlite3.Connection) -> None:
    """Schema 1: cells, the runs that filled them, and batches of facts."""
    for statement in (
        "CREATE TABLE cells (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, info TEXT NOT NULL, error TEXT)",
        "CREATE TABLE runs (id INTEGER PRIMARY KEY, provenance TEXT NOT NULL)",
        "CREATE TABLE batches (id INTEGER PRIMARY KEY, cell INTEGER NOT NULL REFERENCES cells(id), "
        "start INTEGER NOT NULL, count INTEGER NOT NULL, run INTEGER NOT NULL REFERENCES runs(id), "
        "seconds REAL NOT NULL, peak_device INTEGER, peak_process INTEGER, UNIQUE (cell, start))",
        "CREATE TABLE facts (batch INTEGER PRIMARY KEY REFERENCES batches(id), columns BLOB NOT NULL, "
        "changes BLOB NOT NULL)",
        "CREATE TABLE writer (one INTEGER PRIMARY KEY CHECK (one = 1), who TEXT NOT NULL)",
    ):
        base.execute(statement)


def _checksums(base: sqlite3.Connection) -> None:
    """Schema 2: checksums, batches of rows that do not follow each other, columns by name, the model's answers."""
    old = base.execute("SELECT count(*) FROM batches").fetchone()[0]
    tables = ("cells", "runs", "batches", "traces", "doctor", "answers", "inputs", "history", "writer")
    for statement in (
        # These three came late to schema 1: not every store of it has them.
        "CREATE TABLE IF NOT EXISTS traces (cell INTEGER NOT NULL REFERENCES cells(id), position INTEGER NOT NULL, "
        "points BLOB NOT NULL, PRIMARY KEY (cell, position))",
        "CREATE TABLE IF NOT EXISTS doctor (cell INTEGER PRIMARY KEY REFERENCES cells(id), findings TEXT NOT NULL)",
        "CREATE TABLE IF NOT EXISTS inputs (hash TEXT PRIMARY KEY, rows BLOB NOT NULL)",
        "CREATE TABLE answers (cell INTEGER PRIMARY KEY REFERENCES cells(id), logits BLOB NOT NULL)",
        "CREATE TABLE history (schema INTEGER PRIMARY KEY, date TEXT NOT NULL, batches INTEGER NOT NULL)",
        "CREATE TABLE seals (name TEXT PRIMARY KEY, count INTEGER NOT NULL, total BLOB NOT NULL)",
        "ALTER TABLE cells ADD COLUMN stored INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE batches ADD COLUMN stop INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE batches ADD COLUMN places BLOB",
        "ALTER TABLE batches ADD COLUMN names TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE batches ADD COLUMN columns_sum BLOB NOT NULL DEFAULT x''",
        "ALTER TABLE batches ADD COLUMN changes_sum BLOB NOT NULL DEFAULT x''",
        *(f"ALTER TABLE {table} ADD COLUMN checksum BLOB NOT NULL DEFAULT x''" for table in tables),
        "UPDATE cells SET stored = (SELECT coalesce(sum(count), 0) FROM batches WHERE cell = cells.id)",
        "UPDATE batches SET stop = start + count, names = 'row label target clean_prediction prediction outcome l0 "
        "l0_pixel step_found forwards backwards margin seconds'",
    ):
        base.execute(statement)
    for cell, info in base.execute("SELECT id, info FROM cells").fetchall():
        base.execute("UPDATE cells SET info = ? WHERE id = ?", (_moved(info), cell))
    if base.execute("SELECT count(*) FROM cells").fetchone()[0]:
        base.execute("INSERT INTO history (schema, date, batches) VALUES (2, ?, ?)", (time.strftime("%Y-%m-%d"), old))


def _moved(info: str) -> str:
    """A cell's description with the present names of the code it names."""
    try:
        about = json.loads(info)
        for part, name in (("model", "spec"), ("data", "source")):
            place = about["origin"][part]
            for old, new in MOVED.items():
                place[name] = place[name].replace(old, new) if place[name].startswith(old) else place[name]
    except (ValueError, LookupError, TypeError, AttributeError):
        return info  # not readable before, and so not after: reading the cell says so
    return json.dumps(about, sort_keys=True)


def _failures(base: sqlite3.Connection) -> None:
    """Schema 3: spans of rows that failed, and how far the run at work is."""
    for statement in (
        "CREATE TABLE failures (cell INTEGER NOT NULL REFERENCES cells(id), start INTEGER NOT NULL, "
        "stop INTEGER NOT NULL, tries INTEGER NOT NULL, error TEXT NOT NULL, checksum BLOB NOT NULL, "
        "PRIMARY KEY (cell, start))",
        "CREATE TABLE progress (one INTEGER PRIMARY KEY CHECK (one = 1), state TEXT NOT NULL, checksum BLOB NOT NULL)",
        *(f"INSERT INTO seals VALUES ('{table}', 0, zeroblob({SIZE}))" for table in ("failures", "progress")),
    ):
        base.execute(statement)


def _spaces(base: sqlite3.Connection) -> None:
    """Schema 4: cells may have a space and names of features, batches a column of costs. The tables stay as they are.

    A version that knows no spaces would judge such cells by the wrong box: the number tells it to refuse them.
    """
    del base


def _proofs(base: sqlite3.Connection) -> None:
    """Schema 5: proved lower bounds, by model and row, and the digests by which a cell's rows are found among them."""
    for statement in (
        "CREATE TABLE proofs (model TEXT NOT NULL, code TEXT NOT NULL, unit TEXT NOT NULL, space TEXT NOT NULL, "
        "row TEXT NOT NULL, least INTEGER NOT NULL, method TEXT NOT NULL, version INTEGER NOT NULL, "
        "seconds REAL NOT NULL, checksum BLOB NOT NULL, PRIMARY KEY (model, code, unit, space, row))",
        "CREATE TABLE digests (hash TEXT PRIMARY KEY, rows BLOB NOT NULL, checksum BLOB NOT NULL)",
        *(f"INSERT INTO seals VALUES ('{table}', 0, zeroblob({SIZE}))" for table in ("proofs", "digests")),
    ):
        base.execute(statement)


STEPS: tuple[Migration, ...] = (_tables, _checksums, _failures, _spaces, _proofs)
SCHEMA = len(STEPS)
SAME_TABLES = 5  # from this schema on a store can be read as it is
SINCE = {"proofs": 5, "digests": 5}  # the schema that brought a table, where that is later than all of schema 3


def migrate(base: sqlite3.Connection, schema: int) -> None:
    """Take a store from its schema (0: an empty file) to the present one; the caller holds the transaction."""
    for step in STEPS[schema:]:
        step(base)
    if schema < 2:
        checksums.take(base)
    base.execute(f"PRAGMA application_id={APPLICATION}")
    base.execute(f"PRAGMA user_version={SCHEMA}")


def missing(base: sqlite3.Connection, schema: int) -> list[str]:
    """The tables and columns that a store of this schema should have and has not."""
    wanted: dict[str, tuple[str, ...]] = {"cells": (), "runs": (), "batches": (), "facts": (), "writer": ()}
    if schema >= 3:
        here = [table for table in TABLES if SINCE.get(table, 0) <= schema]
        wanted |= {table: (*TABLES[table][1], "checksum") for table in here}
        wanted |= {"facts": ("batch", "columns", "changes"), "seals": ("name", "count", "total")}
    found = {
        table: {name for (name,) in base.execute("SELECT name FROM pragma_table_info(?)", (table,))} for table in wanted
    }
    lost = [f"the table {table}" for table in wanted if not found[table]]
    columns = [(table, name) for table in wanted for name in wanted[table] if name not in found[table]]
    return lost or [f"the column {name} of {table}" for table, name in columns]
