import contextlib
import os
import re
import resource
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sigmazero.store.facts import COLUMNS, KINDS, CellInfo, Facts
from sigmazero.store.pack import pack, pack_indices, unpack, unpack_indices
from sigmazero.store.schema import SCHEMA
from sigmazero.store.store import Store, StoreBusy, StoreError


def cell(key="k", rows=1000, **changes):
    settled = dict(
        model="m", dataset="d", attack="a", parameters={}, version=1, steps=1, unit="feature", goal="untargeted"
    )
    more = dict(budget=None, seed=0, precision="fp32", model_sha256="", data_hash="")
    return CellInfo(key=key, rows=rows, **{**settled, **more, **changes})


def made(n, seed=0, features=50, kind=np.float32):
    g = np.random.default_rng(seed)
    counts = g.integers(0, 6, n)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    index = np.concatenate([np.sort(g.choice(features, c, replace=False)) for c in counts] or [np.zeros(0, np.int64)])
    columns = {name: g.integers(0, 5, n).astype(kind) for name, kind in KINDS.items()}
    return Facts(**columns, offsets=offsets, index=index.astype(np.int64), value=g.random(len(index)).astype(kind))


def same(left, right):
    for name, values in vars(left).items():
        assert np.array_equal(values, getattr(right, name), equal_nan=values.dtype.kind == "f"), name


@st.composite
def facts(draw, kind=np.float32):
    n = draw(st.integers(0, 12))
    columns = {}
    for name in COLUMNS:
        columns[name] = draw(arrays.arrays(KINDS[name], n, elements=arrays.from_dtype(np.dtype(KINDS[name]))))
    rows = [sorted(draw(st.sets(st.integers(0, 150_000), max_size=8))) for _ in range(n)]
    index = np.array([i for row in rows for i in row], np.int64)
    value = draw(arrays.arrays(kind, len(index), elements=arrays.from_dtype(np.dtype(kind), allow_nan=False)))
    return Facts(**columns, offsets=np.cumsum([0, *map(len, rows)]), index=index, value=value)


@given(parts=st.lists(facts(), min_size=1, max_size=4))
@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_facts_come_back_as_they_went_in(tmp_path, parts):
    path = tmp_path / "s.db"
    path.unlink(missing_ok=True)
    with Store(path, write=True) as store:
        store.register([cell()])
        run = store.begin({})
        start = 0
        for part in parts:
            if len(part):
                store.append("k", start, part, run=run)
            start += len(part)
        same(store.facts("k"), Facts.join([part for part in parts if len(part)]))
        few = store.facts("k", perturbations=False)
        assert not len(few.index)
        assert few.l0.tobytes() == Facts.join([part for part in parts if len(part)]).l0.tobytes()


@given(st.lists(arrays.arrays(st.sampled_from(["i8", "i1", "f4", "f8"]), st.integers(0, 9)), max_size=4), st.booleans())
@settings(deadline=None, max_examples=100)
def test_packing_is_exact(given_arrays, compress):
    back = unpack(pack(given_arrays, compress=compress))
    for before, after in zip(given_arrays, back, strict=True):
        again = after.astype(before.dtype)
        if before.dtype.kind == "f":
            assert np.array_equal(np.isnan(before), np.isnan(again))
            assert before[~np.isnan(before)].tobytes() == again[~np.isnan(before)].tobytes()
        else:
            assert before.tobytes() == again.tobytes()


def test_indices_are_kept_as_steps():
    offsets, index = np.array([0, 0, 3, 3, 4]), np.array([5, 70_000, 70_001, 2])
    lengths, steps = pack_indices(offsets, index)
    assert steps.tolist() == [5, 69_995, 1, 2]
    back = unpack_indices(lengths, steps)
    assert [each.tolist() for each in back] == [offsets.tolist(), index.tolist()]


def test_a_damaged_blob_is_named():
    for blob in (pack([np.arange(9)])[:-1], b"\x01xyz"):
        with pytest.raises(ValueError, match="damaged"):
            unpack(blob)


def test_join_take_and_rebuild():
    every = made(20)
    x = torch.rand(20, 2, 5, 5)
    adversarial = every.rebuild(x)
    changed = (adversarial != x).flatten(1).sum(1)
    assert changed.tolist() == np.diff(every.offsets).tolist()
    chosen = np.array([7, 3, 19, 0])
    same(Facts.join([every.take(np.array([7, 3])), every.take(np.array([19, 0]))]), every.take(chosen))
    assert torch.equal(every.take(chosen).rebuild(x[chosen]), adversarial[chosen])
    assert len(Facts.join([])) == 0
    with pytest.raises(ValueError, match="3 inputs"):
        every.rebuild(x[:3])


def fill(path, batches=5):
    with Store(path, write=True) as store:
        store.register([cell()])
        run = store.begin({"torch": "1"})
        for i in range(batches):
            store.append("k", 8 * i, made(8, seed=i), run=run, seconds=2.0, peak_device=i, peak_process=10 - i)


def test_provenance_is_the_maximum_over_batches_and_lists_what_differs(tmp_path):
    fill(tmp_path / "s.db")
    with Store(tmp_path / "s.db", write=True) as store:
        store.append("k", 40, made(8), run=store.begin({"torch": "2"}), seconds=1.0, peak_device=3)
        (info,) = store.cells()
    assert info.provenance == {
        "torch": ["1", "2"],
        "runs": 2,
        "seconds": 11.0,
        "peak_memory_device": 4,
        "peak_memory_process": 10,
    }


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("DELETE FROM runs", "it lacks notes on run 1. It was left as it is; .* sigmazero repair"),
        ("UPDATE cells SET key = CAST(x'6bf4' AS TEXT)", "the file is damaged or no store"),
    ],
)
def test_damage_that_only_the_next_question_meets_is_named_too(tmp_path, damage, said):
    """Found by the fuzzing of readers."""
    with Store(tmp_path / "s.db", write=True) as store:
        store.register([cell("k")])
        store.append("k", 0, made(3), run=store.begin({"torch": "1"}), seconds=1.0)
    base = sqlite3.connect(tmp_path / "s.db")
    base.execute(damage)
    base.commit()
    base.close()
    with Store(tmp_path / "s.db") as store, pytest.raises(StoreError, match=said):  # noqa: PT012
        for key in store.cell_keys():
            store.cell(key)
        store.cells()


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
        assert store.audit() == []
        store.append("other", 4, made(4), run=1)
    with Store(tmp_path / "s.db") as store:
        assert [(s.state, s.error) for s in store.status()] == [("begun", None), ("done", None)]
        assert store.writer() is None
        with pytest.raises(KeyError, match="no cell 'none'"):
            store.facts("none")
        with pytest.raises(StoreError, match="open for reading"):
            store.fail("k", "x")


def test_what_is_written_together_is_stored_together(tmp_path):
    fill(tmp_path / "s.db")
    with Store(tmp_path / "s.db", write=True) as store:

        def both(first: int, second: int) -> None:
            with store.together():
                store.append("k", first, made(8), run=1)
                store.append("k", second, made(8), run=1)

        with pytest.raises(StoreError, match="stored already"):
            both(40, 44)
        assert len(store.facts("k")) == 40
        both(40, 48)
        assert len(store.facts("k")) == 56
        assert store.audit() == []


def test_rows_are_stored_once_and_within_the_cell(tmp_path):
    fill(tmp_path / "s.db")
    with Store(tmp_path / "s.db", write=True) as store:
        for start in (0, 4, 39):
            with pytest.raises(StoreError, match="stored already"):
                store.append("k", start, made(8), run=1)
        with pytest.raises(StoreError, match="1000 rows"):
            store.append("k", 995, made(8), run=1)
        assert len(store.facts("k")) == 40


def test_a_store_at_rest_is_one_file(tmp_path):
    fill(tmp_path / "s.db")
    with Store(tmp_path / "s.db") as store:
        store.status()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.db", "s.db.lock"]


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
        with Store(path, write=True, wait=5) as store:
            assert len(store.facts("k")) == 40
    finally:
        other.kill()
        other.join()


def test_a_second_writer_in_the_same_process_is_refused_too(tmp_path):
    with Store(tmp_path / "s.db", write=True), pytest.raises(StoreBusy, match=f"process {os.getpid()}"):
        Store(tmp_path / "s.db", write=True)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_a_truncated_file_is_refused_and_left_alone(tmp_path, share):
    path = tmp_path / "s.db"
    fill(path, 20)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    for write in (False, True):
        with pytest.raises(StoreError, match=r"cut short|damaged"):
            Store(path, write=write)
    assert path.read_bytes() == whole[: int(len(whole) * share)]


def test_other_files_are_refused_and_left_alone(tmp_path):
    text, other = tmp_path / "a.db", tmp_path / "b.db"
    text.write_text("this is no store, but a text that is long enough to be one" * 20)
    with sqlite3.connect(other) as base:
        base.execute("CREATE TABLE t (a)")
    base.close()
    before = other.read_bytes()
    for write in (False, True):
        with pytest.raises(StoreError, match="damaged or no store"):
            Store(text, write=write)
        with pytest.raises(StoreError, match="no store of sigmazero"):
            Store(other, write=write)
    assert other.read_bytes() == before
    with pytest.raises(StoreError, match="is a folder"):
        Store(tmp_path, write=True)
    with pytest.raises(FileNotFoundError, match="no store"):
        Store(tmp_path / "none.db")


def test_a_store_whose_maker_was_killed_at_once_is_made_again(tmp_path):
    path = tmp_path / "s.db"
    base = sqlite3.connect(path)
    base.execute("PRAGMA journal_mode=WAL")
    base.close()
    assert path.stat().st_size
    with pytest.raises(StoreError, match="is empty"):
        Store(path)
    fill(path)
    with Store(path) as store:
        assert len(store.facts("k")) == 40


def test_a_newer_schema_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "s.db"
    fill(path)
    with sqlite3.connect(path) as base:
        base.execute(f"PRAGMA user_version={SCHEMA + 1}")
    base.close()
    before = path.read_bytes()
    for write in (False, True):
        with pytest.raises(StoreError, match="newer sigmazero"):
            Store(path, write=write)
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_written_to(tmp_path):
    # The permissions of a folder do not stop root, a folder that is a file does.
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be made"):
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


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs a file system that nobody may write to")
def test_a_folder_on_a_read_only_system():
    with pytest.raises(StoreError, match=r"cannot be made|nothing can be written"):
        Store(Path("/proc/sigmazero/s.db"), write=True)


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


@pytest.mark.filterwarnings("ignore")
def test_a_full_disk_is_an_error_and_loses_nothing(tmp_path, children):
    path = tmp_path / "s.db"
    other, pipe = children.start(_until_full, path)
    said = []
    with contextlib.suppress(EOFError):  # it has ended
        while True:
            said.append(pipe.recv())
    other.join()
    assert re.search("is the disk full", said[-1])
    assert len(said) > 3
    with Store(path, write=True) as store:  # there is room again
        assert len(store.facts("k")) == 100 * (len(said) - 1)
        store.append("k", 100 * (len(said) - 1), made(100), run=1)
