"""Open the SQLite file of a store: recognise it, explain SQLite's errors, and let one process at a time write."""

from __future__ import annotations

import os
import socket
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sigmazero.core.messages import one_line

APPLICATION, VERSION = 0x516D615A, 1  # mark a SQLite file as a store, and the version of its tables
RESTORE = "restore a copy, or run again into another file (`sqlite3 FILE .recover` saves what it can)"
FULL = "nothing more can be written (is the disk full?). All finished batches are stored: make room, and run again"
ADVICE = {  # by a word of SQLite's message
    "malformed": f"the file is damaged: {RESTORE}",
    "not a database": "the file is damaged or no store; restore a copy, or name another file",
    "decode": f"the file is damaged: {RESTORE}",
    "no such": f"the file is a damaged store: {RESTORE}",
    "full": FULL,
    "I/O": FULL,
    "readonly": "it cannot be written; check the rights of the file and its folder",
    "unable to open": "it cannot be opened; check that its folder exists and may be written to",
    "locked": "another process is using it; try again when it has finished",
}


class StoreError(RuntimeError):
    """Report that a store cannot be used; the message says why and what to do."""


class StoreBusy(StoreError):
    """Report that another process writes to the store."""


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into a `StoreError` with advice."""
    try:
        yield
    except (sqlite3.Error, UnicodeError) as error:
        reason = one_line(error)
        usual = "what was stored before is still there"
        advice = next((text for word, text in ADVICE.items() if word in reason), usual)
        raise StoreError(f"{path}: {advice} ({reason})") from error


def address(path: Path) -> str:
    """Return the address by which SQLite opens a store for reading."""
    # While reading, SQLite writes files next to a store. If it cannot, say that nothing changes.
    frozen = not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if frozen else ''}"


def open_reading(path: Path, *, empty: bool = False) -> sqlite3.Connection:
    """Open a store for reading, also while another process writes. `empty` allows one without any table."""
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


def open_writing(path: Path, schema: str) -> sqlite3.Connection:
    """Open a store for writing, and make its tables if it has none."""
    with explained(path):
        base = sqlite3.connect(path, isolation_level=None, timeout=30)
        try:
            empty = _is_empty(base, path)
            base.execute("PRAGMA journal_mode=WAL")  # readers see whole batches while we write
            base.execute("PRAGMA synchronous=FULL")  # a committed batch survives a power cut
            if empty:
                base.executescript(f"BEGIN;{schema}COMMIT;")
        except BaseException:
            base.close()
            raise
    return base


def _is_empty(base: sqlite3.Connection, path: Path) -> bool:
    """Return whether a file has no tables yet; refuse anything else that is no store of this version."""
    tables = base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    application, version = (base.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    if (tables, application, version) == (0, 0, 0):
        return True  # a new file, or the process that made it was killed before its first commit
    if application != APPLICATION:
        raise StoreError(f"{path} is a SQLite file of another program, no store of sigmazero; name another file")
    if version != VERSION:
        what = f"{path} was written by another version of sigmazero (its schema is {version}, this one reads {VERSION})"
        raise StoreError(f"{what}; use that version, or run into another file")
    return False


class WriterLock:
    """Let one process at a time write to a store; the lock ends with the process, however it ends.

    It is SQLite's own lock on a second, empty file: a lock on the store itself would keep readers out.
    """

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.base = sqlite3.connect(_lock_file(path), isolation_level=None, timeout=0)
            self.base.execute("BEGIN EXCLUSIVE")
        except (sqlite3.OperationalError, OSError) as error:
            if "locked" not in str(error):
                raise StoreError(
                    f"{path}: nothing can be written to {path.parent} ({error}); name a store in another folder"
                ) from error
            raise StoreBusy(f"{path} is being written by {_last_writer(path)}; wait for it to end") from None

    def close(self) -> None:
        """Release the lock. The empty file stays: if it were removed, two processes could get in at once."""
        self.base.close()


def _lock_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def is_locked(path: Path) -> bool:
    """Return whether a process writes to this store now."""
    try:
        with closing(sqlite3.connect(f"{_lock_file(path).absolute().as_uri()}?mode=ro", uri=True, timeout=0)) as base:
            base.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:  # also if there is no such file
        return "locked" in str(error)
    return False


def noted(base: sqlite3.Connection, path: Path, name: str) -> str | None:
    """Return a note in an open store; None if there is none."""
    with explained(path):
        found = base.execute("SELECT text FROM notes WHERE name = ?", (name,)).fetchone()
    return found and str(found[0])


def _last_writer(path: Path) -> str:
    """Return the last process that opened a store to write, as `this_process` describes it."""
    try:
        with closing(open_reading(path)) as base:
            return noted(base, path, "writer") or "another process"
    except (OSError, StoreError):
        return "another process"


def this_process() -> str:
    """Describe this process for other processes."""
    began = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"process {os.getpid()} on {socket.gethostname()} since {began} ({Path(sys.argv[0]).name})"
