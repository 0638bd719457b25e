"""The tables of a store."""

import sqlite3

from sigmazero.store.checksums import SIZE, TABLES

APPLICATION = 0x516D615A  # marks a SQLite file as ours
SCHEMA = 1  # raised when the tables change
CELL = "cell INTEGER NOT NULL REFERENCES cells(id)"
CHECKSUM = "checksum BLOB NOT NULL"

STATEMENTS = (
    f"CREATE TABLE cells (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, info TEXT NOT NULL, "
    f"stored INTEGER NOT NULL, {CHECKSUM})",
    f"CREATE TABLE runs (id INTEGER PRIMARY KEY, provenance TEXT NOT NULL, {CHECKSUM})",
    f"CREATE TABLE batches (id INTEGER PRIMARY KEY, {CELL}, start INTEGER NOT NULL, count INTEGER NOT NULL, "
    "run INTEGER NOT NULL REFERENCES runs(id), seconds REAL NOT NULL, peak_device INTEGER, peak_process INTEGER, "
    "stop INTEGER NOT NULL, places BLOB, names TEXT NOT NULL, columns_sum BLOB NOT NULL, changes_sum BLOB NOT NULL, "
    f"{CHECKSUM}, UNIQUE (cell, start))",
    "CREATE TABLE facts (batch INTEGER PRIMARY KEY REFERENCES batches(id), columns BLOB NOT NULL, "
    "changes BLOB NOT NULL)",
    f"CREATE TABLE traces ({CELL}, position INTEGER NOT NULL, points BLOB NOT NULL, {CHECKSUM}, "
    "PRIMARY KEY (cell, position))",
    f"CREATE TABLE doctor (cell INTEGER PRIMARY KEY REFERENCES cells(id), findings TEXT NOT NULL, {CHECKSUM})",
    f"CREATE TABLE answers (cell INTEGER PRIMARY KEY REFERENCES cells(id), logits BLOB NOT NULL, {CHECKSUM})",
    f"CREATE TABLE inputs (hash TEXT PRIMARY KEY, rows BLOB NOT NULL, {CHECKSUM})",
    f"CREATE TABLE failures ({CELL}, start INTEGER NOT NULL, stop INTEGER NOT NULL, tries INTEGER NOT NULL, "
    f"error TEXT NOT NULL, {CHECKSUM}, PRIMARY KEY (cell, start))",
    f"CREATE TABLE proofs (model TEXT NOT NULL, code TEXT NOT NULL, unit TEXT NOT NULL, space TEXT NOT NULL, "
    "row TEXT NOT NULL, least INTEGER NOT NULL, method TEXT NOT NULL, version INTEGER NOT NULL, "
    f"seconds REAL NOT NULL, {CHECKSUM}, PRIMARY KEY (model, code, unit, space, row))",
    f"CREATE TABLE digests (hash TEXT PRIMARY KEY, rows BLOB NOT NULL, {CHECKSUM})",
    f"CREATE TABLE writer (one INTEGER PRIMARY KEY CHECK (one = 1), who TEXT NOT NULL, {CHECKSUM})",
    f"CREATE TABLE progress (one INTEGER PRIMARY KEY CHECK (one = 1), state TEXT NOT NULL, {CHECKSUM})",
    "CREATE TABLE seals (name TEXT PRIMARY KEY, count INTEGER NOT NULL, total BLOB NOT NULL)",
)


def create(base: sqlite3.Connection) -> None:
    """Make the tables in an empty file; the caller holds the transaction."""
    for statement in STATEMENTS:
        base.execute(statement)
    base.executemany(f"INSERT INTO seals VALUES (?, 0, zeroblob({SIZE}))", [(table,) for table in TABLES])
    base.execute(f"PRAGMA application_id={APPLICATION}")
    base.execute(f"PRAGMA user_version={SCHEMA}")


def missing(base: sqlite3.Connection) -> list[str]:
    """The tables and columns that a store should have and has not."""
    wanted = {table: (*columns, "checksum") for table, (_, columns) in TABLES.items()}
    wanted |= {"facts": ("batch", "columns", "changes"), "seals": ("name", "count", "total")}
    found = {
        table: {name for (name,) in base.execute("SELECT name FROM pragma_table_info(?)", (table,))} for table in wanted
    }
    lost = [f"the table {table}" for table in wanted if not found[table]]
    columns = [(table, name) for table in wanted for name in wanted[table] if name not in found[table]]
    return lost or [f"the column {name} of {table}" for table, name in columns]
