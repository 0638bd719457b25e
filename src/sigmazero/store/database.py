"""The store's file: recognised before it is touched, opened safely, one writer at a time, and errors in words."""

import getpass
import os
import socket
import sqlite3
import struct
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sigmazero.core.text import one_line
from sigmazero.store.log import lacks_log, misfit
from sigmazero.store.schema import APPLICATION, SCHEMA, create, missing

OTHER = "a SQLite file of another program, no store of sigmazero; name another file"
LEFT = "It was left as it is; restore a copy, or copy what can be read: sigmazero repair"


class StoreError(RuntimeError):
    """A store that cannot be used as asked; the message says why and what to do."""


class StoreBusy(StoreError):
    """Another process writes to the store."""


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """SQLite's errors in words; each transaction that fails is undone, so what was stored before stays."""
    try:
        yield
    except (sqlite3.Error, UnicodeError) as error:  # the latter where damaged text is quoted, or looked for
        reason = one_line(error) if isinstance(error, sqlite3.Error) else "malformed text"
        if "malformed" in reason or "not a database" in reason:
            advice = f"the file is damaged or no store. {LEFT}"
        elif "full" in reason or "I/O error" in reason:
            advice = (
                "nothing more can be written (is the disk full?). All finished batches are kept: make room, run again"
            )
        elif "readonly" in reason or "unable to open" in reason:
            advice = f"it cannot be opened or written; check that {path.parent} exists and may be written to"
        elif "locked" in reason:
            advice = "another process is using it; try again when it has finished"
        else:
            advice = "SQLite cannot do what was asked; what was stored before is kept"
        raise StoreError(f"{path}: {advice} ({reason})") from error


def open_reading(path: Path) -> sqlite3.Connection:
    """A connection that cannot change the file; it may read while another process writes."""
    with explained(path), _closed_on_error(_reader(path)) as base:
        if _checked(base, path) is None:
            raise StoreError(f"{path} is empty: {left_open(path) or 'no run has stored anything in it yet'}")
        return base


def open_writing(path: Path) -> sqlite3.Connection:
    """A connection for the one writer; makes the file if it is not there."""
    with explained(path), _closed_on_error(_prepared(sqlite3.connect(path, isolation_level=None, timeout=30))) as base:
        schema = _checked(base, path)
        if schema is not None:
            found = base.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise sqlite3.DatabaseError(f"malformed: {found}")
        base.execute("PRAGMA journal_mode=WAL")
        base.execute("PRAGMA synchronous=FULL")  # a finished batch survives a power cut too
        if schema is None:
            base.execute("BEGIN IMMEDIATE")  # undone by closing, unless it comes to its end
            create(base)
            base.execute("COMMIT")
        return base


@contextmanager
def _closed_on_error(base: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    try:
        yield base
    except BaseException:
        base.close()
        raise


def recognise(path: Path) -> None:
    """Refuse a file that is no store of ours, by what it is, without writing to it or beside it."""
    if path.is_dir():
        raise StoreError(f"{path} is a folder; name a file in it, such as {path / 'run.db'}")
    if not path.exists():
        return
    _check_head(path)
    if _beside(path, "journal").exists():
        return  # a transaction was cut off, which only a connection that may write can undo
    with explained(path), closing(_reader(path)) as base:
        _checked(base, path)


def _reader(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise FileNotFoundError(f"there is no store {path}; a run into it makes one")
    _check_head(path)
    _check_log(path)
    # Without its log a store in a folder that may not be written to cannot change, and SQLite must be told so.
    frozen = "&immutable=1" if not os.access(path.parent, os.W_OK) and not _beside(path, "wal").exists() else ""
    with explained(path):
        address = f"{path.absolute().as_uri()}?mode=ro{frozen}"
        return _prepared(sqlite3.connect(address, uri=True, isolation_level=None))


def _beside(path: Path, what: str) -> Path:
    """A file that SQLite keeps beside its own: the log of a connection at work, or the journal of one cut off."""
    return path.with_name(f"{path.name}-{what}")


def _prepared(base: sqlite3.Connection) -> sqlite3.Connection:
    """Text that is not UTF-8 any more is still read, so that its checksum can tell."""
    base.text_factory = lambda raw: raw.decode(errors="surrogateescape")
    return base


def _check_head(path: Path) -> None:
    """Refuse what the first bytes show to be something else."""
    with path.open("rb") as file:
        head = file.read(100)
    if head[:4] == b"PK\x03\x04":
        raise StoreError(f"{path} is {_archive(path)}, not a store; name another file")
    if not head:
        return
    if not head.startswith(b"SQLite format 3\0"):
        raise StoreError(f"{path} is damaged or no store: it does not begin as one. {LEFT}")
    if len(head) < 100:
        raise StoreError(f"{path} was cut short: it has {len(head)} bytes. {LEFT}")
    application = struct.unpack_from(">I", head, 68)[0]
    if application not in (0, APPLICATION) or (application == 0 and _beside(path, "journal").exists()):
        raise StoreError(f"{path} is {OTHER}")
    page, pages = struct.unpack_from(">H", head, 16)[0], struct.unpack_from(">I", head, 28)[0]
    whole, size = pages * (65536 if page == 1 else page), path.stat().st_size
    if size < whole and not _beside(path, "wal").exists():
        raise StoreError(f"{path} was cut short: it has {size:,} of {whole:,} bytes. {LEFT}")


def _check_log(path: Path) -> None:
    """Refuse a store beside a log that is not its own: SQLite would put one over the other."""
    if is_held(path) or (why := misfit(path)) is None or is_held(path):
        return  # a log that is written to now cannot be judged, and needs not
    log = _beside(path, "wal")
    raise StoreError(
        f"{path}: the log {log.name} beside it belongs to another copy of the store ({why}). Both were left as they "
        f"are; move {log.name} away to use {path.name} without it, or restore both files of one copy"
    )


def left_open(path: Path) -> str | None:
    """What to say of a store that nobody closed, and whose log is not there; None if that is not so."""
    if not lacks_log(path) or is_held(path):
        return None
    log = _beside(path, "wal").name
    return f"its writer did not end in order, and no {log} is here; if this is a copy, that log has the last rows"


def _archive(path: Path) -> str:
    """A zip file in words."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return "a damaged zip file"
    return "a file of arrays (.npz)" if names and all(name.endswith(".npy") for name in names) else "a zip file"


def _checked(base: sqlite3.Connection, path: Path) -> int | None:
    """The schema of a store, None if nothing was ever stored in it; anything else is refused."""
    tables = base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    application, schema = (base.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    if (tables, application, schema) == (0, 0, 0):
        return None  # a new file, or one whose maker was killed before its first commit
    if application != APPLICATION:
        raise StoreError(f"{path} is {OTHER}")
    if schema > SCHEMA:
        raise StoreError(
            f"{path} was written by a newer sigmazero (its schema is {schema}, this one knows {SCHEMA}); "
            "upgrade sigmazero to use it. It was left as it is"
        )
    if lost := missing(base) if schema > 0 else ["a schema"]:  # of a damaged file it may be below zero
        raise StoreError(f"{path} is a damaged store: it lacks {', '.join(lost)}. {LEFT}")
    return int(schema)


def fold(base: sqlite3.Connection, path: Path) -> None:
    """Copy the log into the file, as far as readers allow, so that the file alone tells as much as it can."""
    with explained(path):
        base.execute("PRAGMA wal_checkpoint(PASSIVE)")


def settle(base: sqlite3.Connection) -> None:
    """Fold the log into the file, so that a store at rest is one file to copy and reading it leaves nothing behind."""
    base.execute("PRAGMA busy_timeout=500")  # readers are quick, and this is no reason to wait for them
    try:
        base.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.OperationalError:  # a reader is at work, or the disk is full: the log stays, and is read as well
        return


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
        with closing(_reader(path)) as base, explained(path):
            found = base.execute("SELECT who FROM writer").fetchone() if _checked(base, path) else None
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
