import contextlib
import os
import re
import resource
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sigmazero.store.facts import COLUMNS, KINDS, Facts
from sigmazero.store.file import APPLICATION, VERSION
from sigmazero.store.store import Store, StoreBusy, StoreError
from tests.store.making import cell, fill, made, same

ANYHOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def sql(path: Path, statement: str, *values: Any) -> list[Any]:
    with closing(sqlite3.connect(path)) as base, base:
        return base.execute(statement, values).fetchall()


@st.composite
def facts(draw, kind):
    n = draw(st.integers(0, 12))
    columns = {}
    for name in COLUMNS:
        columns[name] = draw(arrays.arrays(KINDS[name], n, elements=arrays.from_dtype(np.dtype(KINDS[name]))))
    rows = [sorted(draw(st.sets(st.integers(0, 150_000), max_size=8))) for _ in range(n)]
    index = np.array([i for row in rows for i in row], np.int64)
    value = draw(arrays.arrays(kind, len(index), elements=arrays.from_dtype(np.dtype(kind), allow_nan=False)))
    return Facts(**columns, offsets=np.cumsum([0, *map(len, rows)]), index=index, value=value)


@given(
    parts=st.sampled_from([np.float32, np.float64]).flatmap(lambda kind: st.lists(facts(kind), min_size=1, max_size=3))
)
@settings(deadline=None, max_examples=20, suppress_health_check=ANYHOW)
def test_facts_come_back_as_they_went_in(tmp_path, parts):
    path = tmp_path / "s.db"
    path.unlink(missing_ok=True)
    with Store(path, write=True) as store:
        store.register([cell()])
        run = store.begin({})
        start = 0
        for part in parts:
            store.append("k", start, part, run=run)
            start += len(part)
        every = Facts.join([part for part in parts if len(part.index)])  # where nothing changed, values have no type
        back = store.facts("k")
        same(back.take(np.diff(back.offsets) >= 0), back)
        for name in COLUMNS:
            wanted = np.concatenate([getattr(part, name) for part in parts])
            assert np.array_equal(getattr(back, name), wanted, equal_nan=wanted.dtype.kind == "f"), name
        assert back.index.tolist() == every.index.tolist()
        assert back.value.astype(np.float64).tobytes() == every.value.astype(np.float64).tobytes()
        few = store.facts("k", perturbations=False)
        assert not len(few.index)
        assert np.array_equal(few.l0, back.l0, equal_nan=True)
        assert store.damage() == []  # NaN, infinities and −0.0 have the checksums they were written with


@given(data=st.data())
@settings(deadline=None, max_examples=15, suppress_health_check=ANYHOW)
def test_rows_with_gaps_come_back_in_their_order_and_again_changes_nothing(tmp_path, data):
    path = tmp_path / "s.db"
    path.unlink(missing_ok=True)
    dealt = np.array(data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=30)))
    every = made(len(dealt), seed=data.draw(st.integers(0, 99)))
    order = data.draw(st.permutations([batch for batch in range(1, 5) if (dealt == batch).any()]))
    with Store(path, write=True) as store:
        store.register([cell(rows=len(dealt))])
        run = store.begin({"torch": "1"})
        for batch in order:
            places = np.flatnonzero(dealt == batch)
            store.append("k", data.draw(st.sampled_from([places, places.tolist()])), every.take(places), run=run)
        present = np.flatnonzero(dealt > 0)
        assert store.stored("k").tolist() == (dealt > 0).tolist()
        assert store.positions("k").tolist() == present.tolist()
        same(store.facts("k"), every.take(present))
        found = {tuple(places.tolist()) for places, about in store.batches("k") if about == {"torch": "1"}}
        assert found == {tuple(np.flatnonzero(dealt == batch).tolist()) for batch in order}
        store.append("k", 0, every, run=run)  # fills the gaps
        store.append("k", 0, made(len(dealt), seed=1000), run=store.begin({}))  # and this finds none
        same(store.facts("k"), every)


def test_positions_that_cannot_be_meant_are_refused(tmp_path):
    with Store(tmp_path / "s.db", write=True) as store:
        store.register([cell(rows=10)])
        run = store.begin({})
        cases: list[Any] = [[0, 1], [3, 3, 5], [-1, 2, 3], [7, 8, 10], 8, -1]
        for places in cases:
            with pytest.raises((ValueError, StoreError)):
                store.append("k", places, made(3), run=run)
        store.append("k", 4, Facts.empty(), run=run)
        assert not store.stored("k").any()
        assert len(store.facts("k")) == 0


def test_status_and_failures(tmp_path):
    fill(tmp_path / "s.db")
    with Store(tmp_path / "s.db", write=True) as store:
        store.register([cell("other", rows=8), cell(model="renamed")])
        assert store.cells()[0].model == "renamed"
        store.note_progress({"cells": ["k"]})
        assert [(s.state, s.done) for s in store.status()] == [("running", 40), ("waiting", 0)]
        store.fail("other", "it broke")
        store.fail("other", "killed by signal 9", span=(4, 8), tries=3)
        store.append("other", 0, made(4), run=1)
        assert [s.state for s in store.status()] == ["running", "failed"], "facts of other rows do not mend it"
        assert [(one.start, one.stop, one.tries) for one in store.failures()] == [(0, 8, 1), (4, 8, 3)]
        store.retry("other")
        assert store.failures() == []
        store.append("other", 4, made(4), run=1)
        store.supersede("other", "k")
    with Store(tmp_path / "s.db") as store:
        assert [(s.state, s.error) for s in store.status()] == [("begun", None), ("done", None)]
        assert store.superseded() == {"other": "k"}
        assert store.writer() is None
        assert store.damage() == []
        with pytest.raises(KeyError, match="no cell 'none'"):
            store.facts("none")
        with pytest.raises(StoreError, match="open for reading"):
            store.fail("k", "x")


def test_what_is_written_together_is_stored_together(tmp_path):
    fill(tmp_path / "s.db")
    with Store(tmp_path / "s.db", write=True) as store:

        def both(second: int) -> None:
            with store.together():
                store.append("k", 40, made(8), run=1)
                store.append("k", second, made(8), run=1)

        with pytest.raises(StoreError, match="1000 rows"):
            both(995)
        assert len(store.facts("k")) == 40
        both(48)
        assert len(store.facts("k")) == 56


def test_a_store_at_rest_is_one_file_that_others_read(tmp_path):
    fill(tmp_path / "s.db")
    with Store(tmp_path / "s.db") as store:
        store.status()
        stored = store.facts("k")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.db", "s.db.lock"]
    found = sql(tmp_path / "s.db", "SELECT model, attack, position, l0, ended, changed FROM results ORDER BY position")
    assert [row[:4] for row in found] == [("m", "a", i, l0) for i, l0 in enumerate(stored.l0)]
    assert {row[4] for row in found} <= {"already", "found", "not_found", "non_finite", "unverified"}
    assert np.concatenate([np.frombuffer(row[5], "<u4") for row in found]).tolist() == stored.index.tolist()


def _hold(path, pipe):
    with Store(path, write=True):
        pipe.send("holding")
        pipe.recv()


def test_a_second_writer_is_refused_or_waits(tmp_path, children):
    path = tmp_path / "s.db"
    fill(path)
    other, pipe = children.start(_hold, path)
    try:
        assert pipe.recv() == "holding"
        with pytest.raises(StoreBusy, match=rf"process {other.pid} .* since"):
            Store(path, write=True)
        with Store(path) as reading:  # readers are welcome
            assert len(reading.facts("k")) == 40
            assert f"process {other.pid}" in (reading.writer() or "")
        other.kill()  # nothing is left behind that would keep the next one out
        other.join()
        with Store(path, write=True) as store:
            assert len(store.facts("k")) == 40
    finally:
        other.kill()
        other.join()


def test_killed_at_any_point_of_a_transaction_a_batch_is_there_or_not(tmp_path, children):
    """The fifth transaction is the second batch: the first three note the writer, the cell and the run."""
    for point, batches in {"begin": 1, "commit": 1, "committed": 2}.items():
        assert children.killed(f"store.{point}:5", fill, tmp_path / f"{point}.db")
        with Store(tmp_path / f"{point}.db") as store:
            same(store.facts("k"), Facts.join([made(8, seed=i) for i in range(batches)]))
            assert store.damage() == []


# Files that are no store, or a damaged one ---------------------------------------------------------------------------


def torn(path: Path) -> None:
    fill(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 9 // 10])


def other_program(path: Path) -> None:
    sql(path, "CREATE TABLE t (a)")


def statement(text: str):
    def make(path: Path) -> None:
        fill(path)
        path.with_name(f"{path.name}.lock").unlink()
        sql(path, text)

    return make


FILES = {
    "cut short": (torn, "damaged"),
    "another program's": (other_program, "no store of sigmazero"),
    "marked as another's": (statement("PRAGMA application_id=4660"), "no store of sigmazero"),
    "another version's": (statement(f"PRAGMA user_version={VERSION + 1}"), f"schema is {VERSION + 1}"),
    "a text": (lambda path: path.write_text("a text that is no store" * 99), "no store"),
    "a beginning": (lambda path: path.write_bytes(b"SQLite format 3\0 and no more"), "no store|damaged"),
    "a folder": (Path.mkdir, "is a folder"),
}


@pytest.mark.parametrize("kind", FILES)
def test_what_is_no_store_is_named_in_one_line_and_left_alone(tmp_path, kind):
    make, messages = FILES[kind]
    path = tmp_path / "file.db"
    make(path)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir() if each.is_file()}
    for write in (False, True):
        with pytest.raises(StoreError, match=messages) as caught:
            Store(path, write=write)
        assert "\n" not in str(caught.value)
        assert str(path) in str(caught.value)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir() if each.is_file()} == before


def test_no_file_and_an_empty_one(tmp_path):
    with pytest.raises(FileNotFoundError, match="no store"):
        Store(tmp_path / "none.db")
    path = tmp_path / "s.db"
    sql(path, "PRAGMA journal_mode=WAL")  # as if its maker had been killed at once
    assert path.stat().st_size
    with pytest.raises(StoreError, match="is empty"):
        Store(path)
    fill(path)
    assert sql(path, "PRAGMA application_id") == [(APPLICATION,)]


ALTERED = {
    "a count": "UPDATE samples SET forwards = forwards + 1 WHERE position = 3",
    "nothing found": "UPDATE samples SET l0 = 9e999 WHERE position = 3",
    "another place": "UPDATE samples SET position = 900 WHERE position = 3",
    "beyond the cell": "UPDATE samples SET position = 1900 WHERE position = 3",
    "a change": "UPDATE samples SET became = zeroblob(length(became)) WHERE length(became) > 0",
    "a type": "UPDATE samples SET seconds = 'soon' WHERE position = 3",
    "a cell": "UPDATE cells SET key = 'other'",
    "a description": "UPDATE cells SET info = '{}'",
    "no run": "DELETE FROM runs",
    "findings": "UPDATE cells SET findings = 'none'",
    "broken text": "UPDATE cells SET key = CAST(x'6bf4' AS TEXT)",
    "a missing table": "DROP TABLE arrays",
    "arrays": "INSERT INTO arrays VALUES ('hash', x'0011')",
    "a trace": "INSERT INTO traces VALUES (1, 1, x'0011')",
}


@pytest.mark.parametrize("what", ALTERED)
def test_what_is_not_as_it_was_written_is_noticed(tmp_path, what):
    path = tmp_path / "s.db"
    fill(path)
    sql(path, ALTERED[what])
    with Store(path) as store:
        flaws = store.damage()
        assert flaws
        assert all("\n" not in flaw.what for flaw in flaws)
        with contextlib.suppress(StoreError, KeyError):  # and nothing but this comes of reading it
            for key in store.cell_keys():
                store.facts(key)
                store.batches(key)
            store.cells()
            store.arrays("hash")
            store.trace("k", 1)


def test_a_folder_that_cannot_be_written_to(tmp_path):
    # The permissions of a folder do not stop root, a folder that is a file does.
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="nothing can be written"):
        Store(tmp_path / "file" / "s.db", write=True)
    folder = tmp_path / "folder"
    fill(folder / "s.db")
    (folder / "s.db.lock").unlink()
    folder.chmod(0o555)
    try:
        if not os.access(folder, os.W_OK):
            with pytest.raises(StoreError, match="nothing can be written"):
                Store(folder / "s.db", write=True)
        with Store(folder / "s.db") as store:
            assert len(store.facts("k")) == 40
    finally:
        folder.chmod(0o755)


def _until_full(path, out):
    with Store(path, write=True) as store:
        store.register([cell(rows=10**6)])
        run = store.begin({})
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
        try:
            for i in range(10_000):
                store.append("k", 100 * i, made(100, seed=i), run=run)
                out.send(i)
        except StoreError as error:
            out.send(str(error))


def test_a_full_disk_is_an_error_and_loses_nothing(tmp_path, children):
    path = tmp_path / "s.db"
    other, pipe = children.start(_until_full, path)
    messages = []
    with contextlib.suppress(EOFError):  # it has ended
        while True:
            messages.append(pipe.recv())
    other.join()
    assert re.search("is the disk full", messages[-1])
    assert len(messages) > 3
    with Store(path, write=True) as store:  # there is room again
        assert len(store.facts("k")) == 100 * (len(messages) - 1)
        store.append("k", 100 * (len(messages) - 1), made(100), run=1)
