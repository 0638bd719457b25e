"""Checksums: whatever is altered in a store, or taken out of it, is noticed.

Every row of every table has a checksum over all its values, bound to the key of the cell it belongs to: values that
are changed, or moved to another cell or position, no longer fit. A batch's row has the checksums of its two blobs of
facts, so each blob can be checked when it is read, and not before. The sum of the checksums of each table is kept in
`seals`: a row that is deleted, or put back from an older copy, is missed there.

This is made against accidents and careless edits. Whoever writes new checksums for what they changed is not noticed
here, only by asking the model again (`sigmazero.bench.verify`); whoever puts back a whole older file is not noticed.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

SIZE = 16  # bytes of a checksum

BATCHES = (
    *("id", "cell", "start", "stop", "count", "places", "run", "seconds"),
    *("peak_device", "peak_process", "names", "columns_sum", "changes_sum"),
)
# The columns that a row's checksum covers, and by how many of them (the first ones) a row is found.
TABLES: dict[str, tuple[int, tuple[str, ...]]] = {
    "cells": (1, ("id", "key", "info", "stored")),
    "runs": (1, ("id", "provenance")),
    "batches": (1, BATCHES),
    "traces": (2, ("cell", "position", "points")),
    "doctor": (1, ("cell", "findings")),
    "answers": (1, ("cell", "logits")),
    "inputs": (1, ("hash", "rows")),
    "writer": (1, ("one", "who")),
    "failures": (2, ("cell", "start", "stop", "tries", "error")),
    "progress": (1, ("one", "state")),
    "proofs": (5, ("model", "code", "unit", "space", "row", "least", "method", "version", "seconds")),
    "digests": (1, ("hash", "rows")),
}
WORDS = {
    "cells": "the description of cell {key!s:.12}",
    "runs": "the provenance of run {id}",
    "batches": "the facts of rows {start} up to {stop}",
    "traces": "the trace of row {position}",
    "doctor": "what the doctor found",
    "answers": "the model's answers",
    "inputs": "the inputs with the hash {hash!s:.12}",
    "writer": "the name of the last writer",
    "failures": "why rows {start} up to {stop} failed",
    "progress": "how far the last run was",
    "proofs": "the lower bound proved of the row with the digest {row!s:.12}",
    "digests": "the digests of the rows with the hash {hash!s:.12}",
}
ALTERED = "not as it was written (another checksum)"


@dataclass(frozen=True)
class Flaw:
    """Something in a store that is not as it was written; `key` is that of the cell, if it concerns one."""

    what: str
    key: str | None = None


def blob_sum(blob: bytes) -> bytes:
    """The checksum of some bytes."""
    return blake2b(blob, digest_size=SIZE).digest()


def row_sum(table: str, key: str | None, values: tuple[Any, ...]) -> bytes:
    """The checksum of a row that belongs to the cell with this key, or to none."""
    short = tuple(blob_sum(value) if isinstance(value, bytes) else value for value in values)
    return blob_sum(repr((table, key, short)).encode())


def selected(table: str) -> str:
    """The columns of a row and its checksum, as `is_whole` takes them."""
    return ", ".join(f"{table}.{name}" for name in (*TABLES[table][1], "checksum"))


def is_whole(table: str, key: str | None, row: tuple[Any, ...]) -> bool:
    """Whether the columns of a row have the checksum that follows them."""
    width = len(TABLES[table][1])
    return bool(row_sum(table, key, row[:width]) == row[width])


def put(base: sqlite3.Connection, table: str, key: str | None, *values: Any) -> None:
    """Write a row with its checksum, in place of the one it may replace, and carry it into the table's sum."""
    found_by, columns = TABLES[table]
    where = " AND ".join(f"{name} = ?" for name in columns[:found_by])
    old = base.execute(f"SELECT checksum FROM {table} WHERE {where}", values[:found_by]).fetchone()
    new = row_sum(table, key, values)
    names, marks = ", ".join((*columns, "checksum")), ", ".join("?" * (len(columns) + 1))
    word = "INSERT" if old is None else "REPLACE"
    base.execute(f"{word} INTO {table} ({names}) VALUES ({marks})", (*values, new))
    count, total = base.execute("SELECT count, total FROM seals WHERE name = ?", (table,)).fetchone()
    changed = _plus(total, new) if old is None else _plus(total, new, minus=old[0])
    base.execute("UPDATE seals SET count = ?, total = ? WHERE name = ?", (count + (old is None), changed, table))


def add(base: sqlite3.Connection, table: str, rows: Sequence[tuple[str | None, tuple[Any, ...]]]) -> None:
    """Write rows that replace none, each with the key it belongs to, and carry them into the sum at once."""
    columns = (*TABLES[table][1], "checksum")
    whole = [(*values, row_sum(table, key, values)) for key, values in rows]
    base.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", whole)
    count, total = base.execute("SELECT count, total FROM seals WHERE name = ?", (table,)).fetchone()
    for row in whole:
        total = _plus(total, row[-1])
    base.execute("UPDATE seals SET count = ?, total = ? WHERE name = ?", (count + len(whole), total, table))


def remove(base: sqlite3.Connection, table: str, *values: Any) -> None:
    """Take the rows out that these values find (the first columns, or fewer), and out of the table's sum."""
    where = " AND ".join(f"{name} = ?" for name in TABLES[table][1][: len(values)])
    gone = base.execute(f"SELECT checksum FROM {table} WHERE {where}", values).fetchall()
    base.execute(f"DELETE FROM {table} WHERE {where}", values)
    count, total = base.execute("SELECT count, total FROM seals WHERE name = ?", (table,)).fetchone()
    for (old,) in gone:
        total = _plus(total, bytes(SIZE), minus=old)
    base.execute("UPDATE seals SET count = ?, total = ? WHERE name = ?", (count - len(gone), total, table))


def audit(base: sqlite3.Connection) -> Iterator[Flaw]:
    """Everything in a store that is not as it was written."""
    for (found,) in base.execute("PRAGMA integrity_check(20)").fetchall():
        if found != "ok":
            yield Flaw(f"SQLite finds the file damaged: {found}")
    for table in TABLES:
        try:
            yield from _audit(base, table)
        except sqlite3.DatabaseError as error:
            yield Flaw(f"the table {table} cannot be read ({error})")
    lost = "SELECT count(*) FROM facts LEFT JOIN batches ON batches.id = facts.batch WHERE batches.id IS NULL"
    if count := base.execute(lost).fetchone()[0]:
        yield Flaw(f"{count} of the facts belong to no batch")
    seals = [name for (name,) in base.execute("SELECT name FROM seals")]
    if extra := set(map(repr, seals)) - set(map(repr, TABLES)):
        yield Flaw(f"the table seals has rows that are not known: {', '.join(sorted(extra))}")


def _audit(base: sqlite3.Connection, table: str) -> Iterator[Flaw]:
    keys = dict(base.execute("SELECT id, key FROM cells"))
    total, count, sound = bytes(SIZE), 0, True
    for row in base.execute(f"SELECT {selected(table)} FROM {table} NOT INDEXED"):
        key = _owner(table, row, keys)
        wrong = [] if is_whole(table, key, row) else [ALTERED]
        wrong += _wrong_blobs(base, row) if table == "batches" and not wrong else []
        wrong += _wrong_count(base, row) if table == "cells" and not wrong else []
        owner = row[1] if table == "cells" else key
        yield from (Flaw(f"{label(table, row)}: {one}", owner if isinstance(owner, str) else None) for one in wrong)
        sound &= not wrong
        total, count = _plus(total, row[-1]), count + 1
    seal = base.execute("SELECT count, total FROM seals WHERE name = ?", (table,)).fetchone()
    if seal is None:
        yield Flaw(f"the sum of the table {table} is missing")
    elif seal[0] != count:
        yield Flaw(f"the table {table} has {count} rows and should have {seal[0]}")
    elif seal[1] != total and sound:
        yield Flaw(f"the table {table} has other rows than those written last")


def label(table: str, row: tuple[Any, ...]) -> str:
    """What a row is, in words."""
    return WORDS[table].format(**dict(zip(TABLES[table][1], row, strict=False)))


def _wrong_blobs(base: sqlite3.Connection, row: tuple[Any, ...]) -> list[str]:
    """What is wrong with the facts of a batch."""
    named = dict(zip(TABLES["batches"][1], row, strict=False))
    blobs = base.execute("SELECT columns, changes FROM facts WHERE batch = ?", (named["id"],)).fetchone()
    if blobs is None:
        return ["missing"]
    kept = (named["columns_sum"], named["changes_sum"])
    whole = all(isinstance(blob, bytes) and blob_sum(blob) == wanted for blob, wanted in zip(blobs, kept, strict=True))
    return [] if whole else [ALTERED]


def _wrong_count(base: sqlite3.Connection, row: tuple[Any, ...]) -> list[str]:
    """Whether a cell has as many rows of facts as were stored."""
    named = dict(zip(TABLES["cells"][1], row, strict=False))
    held = base.execute("SELECT coalesce(sum(count), 0) FROM batches WHERE cell = ?", (named["id"],)).fetchone()[0]
    return [] if held == named["stored"] else [f"facts of {named['stored']} rows were stored, there are {held}"]


def _owner(table: str, row: tuple[Any, ...], keys: dict[Any, Any]) -> str | None:
    """The key that a row's checksum is bound to."""
    columns = TABLES[table][1]
    return keys.get(row[columns.index("cell")]) if "cell" in columns else None


def _plus(total: bytes, new: bytes, minus: bytes = b"") -> bytes:
    numbers = [int.from_bytes(each, "big") if isinstance(each, bytes) else 0 for each in (total, new, minus)]
    changed = (numbers[0] + numbers[1] - numbers[2]) % (1 << 8 * SIZE)
    return changed.to_bytes(SIZE, "big")
