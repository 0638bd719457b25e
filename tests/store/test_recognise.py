"""What is no store is recognised by what it is, before anything is written to it or beside it."""

import sqlite3
import zipfile

import numpy as np
import pytest

from sigmazero.store import Store, StoreError
from sigmazero.store.checksums import TABLES
from sigmazero.store.schema import APPLICATION, SCHEMA


def other_program(path, application=0, pragma=""):
    base = sqlite3.connect(path)
    base.executescript(f"{pragma} CREATE TABLE notes (text); INSERT INTO notes VALUES ('mine')")
    base.execute(f"PRAGMA application_id={application}")
    base.commit()
    base.close()


def marked(path):
    other_program(path, 0x1234)


def in_a_transaction(path):
    """As it looks while another program writes, or after that program was killed."""
    other_program(path)
    path.with_name(f"{path.name}-journal").write_bytes(b"a journal of somebody else")


def broken(statement):
    def make(path):
        Store(path, write=True).close()
        path.with_name(f"{path.name}.lock").unlink()
        base = sqlite3.connect(path)
        base.executescript(statement)
        base.close()

    return make


def torn(path):
    """A store with a wrong byte in the text of its schema."""
    Store(path, write=True).close()
    path.with_name(f"{path.name}.lock").unlink()
    whole = path.read_bytes()
    assert b"CREATE TABLE doctor" in whole
    path.write_bytes(whole.replace(b"CREATE TABLE doctor", b"CREATE TA\xc2LE doctor"))


def archive(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a.txt", "text")


def arrays(path):
    with path.open("wb") as file:
        np.savez(file, images=np.zeros(3))


def mark_alone(path):
    base = sqlite3.connect(path)
    base.executescript(f"PRAGMA application_id={APPLICATION}; PRAGMA user_version={SCHEMA}")
    base.close()


FILES = {
    "another program's": (other_program, "is a SQLite file of another program, no store of sigmazero; name another"),
    "another program's, marked": (marked, "is a SQLite file of another program"),
    "another program's, at work": (in_a_transaction, "is a SQLite file of another program"),
    "of a newer version": (broken(f"PRAGMA user_version={SCHEMA + 1}"), "was written by a newer sigmazero"),
    "without a schema": (broken("PRAGMA user_version=0"), "is a damaged store: it lacks a schema"),
    "of a schema below zero": (broken("PRAGMA user_version=-5"), "is a damaged store: it lacks a schema"),
    "marked, and nothing else": (mark_alone, "is a damaged store: it lacks"),
    "torn": (torn, "damaged or no store"),
    "a zip file": (archive, "is a zip file, not a store; name another file"),
    "arrays": (arrays, r"is a file of arrays \(\.npz\), not a store"),
    "half a zip file": (lambda path: path.write_bytes(b"PK\x03\x04 and no more"), "is a damaged zip file"),
    "a text": (lambda path: path.write_text("a text"), "is damaged or no store"),
    "a beginning": (lambda path: path.write_bytes(b"SQLite format 3\0 and no more"), "was cut short: it has 28 bytes"),
    **{
        f"without {table}": (broken(f"DROP TABLE {table}"), f"is a damaged store: it lacks the table {table}. It was")
        for table in (*TABLES, "facts", "seals")
    },
    "without a column": (
        broken("ALTER TABLE batches DROP COLUMN places"),
        "is a damaged store: it lacks the column places of batches",
    ),
}


@pytest.mark.parametrize("kind", FILES)
def test_it_is_named_and_left_alone(tmp_path, kind):
    make, said = FILES[kind]
    path = tmp_path / "file.db"
    make(path)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    for write in (False, True):
        with pytest.raises(StoreError, match=said) as caught:
            Store(path, write=write)
        assert "\n" not in str(caught.value)
        assert str(path) in str(caught.value)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_a_store_beside_its_log_is_recognised_by_both(tmp_path):
    """A run that was killed leaves the log: with it, and with a copy of it, the store is read and written."""
    path, copy = tmp_path / "s.db", tmp_path / "copy" / "s.db"
    copy.parent.mkdir()
    store = Store(path, write=True)
    store.begin({"torch": "1"})
    for suffix in ("", "-wal"):  # as they are on disk now
        copy.with_name(f"s.db{suffix}").write_bytes(path.with_name(f"s.db{suffix}").read_bytes())
    store.close()
    for write in (False, True):
        with Store(copy, write=write) as opened:
            assert opened.audit() == []
            assert opened._ask("SELECT count(*) FROM runs") == [(1,)]
