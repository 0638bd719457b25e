"""The store's file: opening it safely, one writer at a time, and errors in words."""

import getpass
import os
import socket
import sqlite3
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

APPLICATION = 0x516D615A  # marks a SQLite file as ours
SCHEMA = 1
TABLES = """
CREATE TABLE cells (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, info TEXT NOT NULL, error TEXT);
CREATE TABLE runs (id INTEGER PRIMARY KEY, provenance TEXT NOT NULL);
CREATE TABLE batches (
  id INTEGER PRIMARY KEY,
  cell INTEGER NOT NULL REFERENCES cells(id),
  start INTEGER NOT NULL,
  count INTEGER NOT NULL,
  run INTEGER NOT NULL REFERENCES runs(id),
  seconds REAL NOT NULL,
  peak_device INTEGER,
  peak_process INTEGER,
  UNIQUE (cell, start)
);
CREATE TABLE facts (batch INTEGER PRIMARY KEY REFERENCES batches(id), columns BLOB NOT NULL, changes BLOB NOT NULL);
CREATE TABLE writer (one INTEGER PRIMARY KEY CHECK (one = 1), who TEXT NOT NULL);
"""
# Came later; a store without it is whole, and gets it when it is next written to.
TRACES = """
CREATE TABLE IF NOT EXISTS traces (
  cell INTEGER NOT NULL REFERENCES cells(id),
  position INTEGER NOT NULL,
  points BLOB NOT NULL,
  PRIMARY KEY (cell, position)
);
"""
# Stores from before the doctor was asked lack it, and older versions do not look for it: no reason for a new schema.
# The same holds for the inputs of runs from Python.
INPUTS = "CREATE TABLE IF NOT EXISTS inputs (hash TEXT PRIMARY KEY, rows BLOB NOT NULL)"
DOCTOR = "CREATE TABLE IF NOT EXISTS doctor (cell INTEGER PRIMARY KEY REFERENCES cells(id), findings TEXT NOT NULL)"


class StoreError(RuntimeError):
    """A store that cannot be used as asked; the message says why and what to do."""


class StoreBusy(StoreError):
    """Another process writes to the store."""


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """SQLite's errors in words; each transaction that fails is undone, so what was stored before stays."""
    try:
        yield
    except sqlite3.Error as error:
        reason = str(error)
        if "malformed" in reason or "not a database" in reason:
            advice = "the file is damaged or no store; it was left as it is. Restore a copy, or start another store"
        elif "full" in reason or "I/O error" in reason:
            advice = (
                "nothing more can be written (is the disk full?). All finished batches are kept: make room, run again"
            )
        elif "readonly" in reason or "unable to open" in reason:
            advice = f"it cannot be opened or written; check that {path.parent} exists and may be written to"
        elif "locked" in reason:
            advice = "another process is using it; try again when it has finished"
        else:
            advice = "nothing of the last batch was stored; earlier batches are kept"
        raise StoreError(f"{path}: {advice} ({reason})") from error


def open_reading(path: Path) -> sqlite3.Connection:
    """A connection that cannot change anything; it may read while another process writes."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no store {path}; sigmazero run PLAN makes one")
    log = path.with_name(f"{path.name}-wal")
    # Without its log a store in a folder that may not be written to cannot change, and SQLite must be told so.
    frozen = "&immutable=1" if not os.access(path.parent, os.W_OK) and not log.exists() else ""
    with explained(path):
        base = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{frozen}", uri=True, isolation_level=None)
        if _is_blank(base):
            raise StoreError(f"{path} is empty: no run has stored anything in it yet")
        _check(base, path)
    return base


def open_writing(path: Path) -> sqlite3.Connection:
    """A connection for the one writer; makes the file if it is not there."""
    with explained(path):
        base = sqlite3.connect(path, isolation_level=None, timeout=30)
        new = _is_blank(base)
        if not new:
            _check(base, path)
            found = base.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise sqlite3.DatabaseError(f"malformed: {found}")
        base.execute("PRAGMA journal_mode=WAL")
        base.execute("PRAGMA synchronous=FULL")  # a finished batch survives a power cut too
        if new:
            statements = "".join((TABLES, f"PRAGMA application_id={APPLICATION};", f"PRAGMA user_version={SCHEMA};"))
            base.executescript(f"BEGIN IMMEDIATE; {statements} COMMIT;")
        base.execute(TRACES)
        base.execute(DOCTOR)
        base.execute(INPUTS)
    return base


def _is_blank(base: sqlite3.Connection) -> bool:
    """Whether nothing was ever stored here: a new file, or one whose maker was killed before its first commit."""
    tables = base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    marks = [base.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    return tables == 0 and marks == [0, 0]


def settle(base: sqlite3.Connection) -> None:
    """Fold the log into the file, so that a store at rest is one file to copy and reading it leaves nothing behind."""
    base.execute("PRAGMA busy_timeout=500")  # readers are quick, and this is no reason to wait for them
    try:
        base.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.OperationalError:  # a reader is at work, or the disk is full: the log stays, and is read as well
        return


def _check(base: sqlite3.Connection, path: Path) -> None:
    """Refuse what is no store, a store cut short, and one from the future."""
    application, version = (base.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    if application != APPLICATION:
        raise StoreError(f"{path} is no store of sigmazero; name another file")
    if version > SCHEMA:
        raise StoreError(
            f"{path} was written by a newer sigmazero (its schema is {version}, this one knows {SCHEMA}); "
            "upgrade sigmazero to use it. It was left as it is"
        )
    with path.open("rb") as file:
        head = file.read(100)
    page, pages = struct.unpack_from(">H", head, 16)[0], struct.unpack_from(">I", head, 28)[0]
    whole = pages * (65536 if page == 1 else page)
    if path.stat().st_size < whole and not path.with_name(f"{path.name}-wal").exists():
        raise StoreError(
            f"{path} was cut short: it has {path.stat().st_size:,} of {whole:,} bytes. It was left as it is; restore a "
            "copy, or start another store"
        )


class WriterLock:
    """Held by the one process that writes to a store; ends with the process, however it ends.

    It is the lock of a second, empty SQLite file beside the store: SQLite's locks work on every system, and one on the
    store itself would keep readers out.
    """

    def __init__(self, path: Path, wait: float) -> None:
        self.path = path.with_name(f"{path.name}.lock")
        try:
            self.base = sqlite3.connect(self.path, isolation_level=None, timeout=wait)
            self.base.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise StoreError(
                    f"{path}: nothing can be written to {path.parent} ({error}); name a store in another folder"
                ) from error
            raise StoreBusy(
                f"{path} is being written by {holder(path) or 'another process'}; wait for it to end"
            ) from None

    def close(self) -> None:
        """Let the next one in; the empty file stays, because removing it could let two in."""
        self.base.close()


def is_held(path: Path) -> bool:
    """Whether some process writes to this store now."""
    lock = path.with_name(f"{path.name}.lock")
    if not lock.exists():
        return False
    try:
        with closing(sqlite3.connect(f"{lock.absolute().as_uri()}?mode=ro", uri=True, timeout=0)) as base:
            base.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        return "locked" in str(error)
    return False


def holder(path: Path) -> str | None:
    """Who wrote to the store last, in words; None as long as it has not got that far."""
    try:
        with closing(open_reading(path)) as base, explained(path):
            found = base.execute("SELECT who FROM writer").fetchone()
    except (FileNotFoundError, StoreError):
        return None
    return found[0] if found else None


def myself() -> str:
    """This process, for the message that another one gets."""
    began = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"process {os.getpid()} of {_user()} on {socket.gethostname()} since {began} ({Path(sys.argv[0]).name})"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run as a number without a name
        return f"user {os.getuid()}"
