"""Merging stores: the union, another run counted, one run with two values refused."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sigmazero.store import Store, StoreBusy, StoreError
from sigmazero.store.merge import merge
from sigmazero.store.proofs import Proof, ProofKey
from tests.store.making import cell, made, same

ROWS = 12
TRUTH = {key: made(ROWS, seed) for seed, key in enumerate(("one", "two"))}
ABOUT = ProofKey("w", "c", "feature", "s")
A, B = {"code": "SZ001", "text": "a"}, {"code": "SZ004", "text": "b"}


def fill(path: Path, batches, error: str | None = None) -> Path:
    """Write batches to a store: the cell, the places, and the run."""
    with Store(path, write=True) as store:
        store.register([cell(key, ROWS, origin={"model": path.name}) for key in TRUTH])
        runs: dict[str, int] = {}
        for key, places, by in batches:
            runs[by] = runs.get(by) or store.begin({"device": by})
            store.append(key, list(places), TRUTH[key].take(np.array(places)), run=runs[by])
        if error is not None:
            store.fail("one", error, (2, 10), tries=2)
    return path


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(statement)


def test_a_row_keeps_its_run_and_another_run_is_counted_and_named(tmp_path):
    one = fill(tmp_path / "1.db", [("one", range(5), "b")])
    two = fill(tmp_path / "2.db", [("one", range(3, 9), "a"), ("two", [4], "c")])
    with Store(two, write=True) as store:  # a third run, that found something else for two rows of `two`
        other = replace(TRUTH["two"].take(slice(4, 6)), l0=np.array([77.0, 78.0]))
        store.append("two", 4, other, run=store.begin({"device": "d", "prepare": "none"}))
    done = merge([one, two], tmp_path / "all.db")
    assert (done.cells, done.rows, done.lacking) == (2, 11, 13)
    assert [(again.store, again.key, again.rows, again.differ) for again in done.repeated] == [(two, "one", 2, 0)]
    with Store(tmp_path / "all.db") as store:
        assert {tuple(places): about["device"] for places, about in store.batches("one")} == {
            (0, 1, 2, 3, 4): "b",
            (5, 6, 7, 8): "a",
        }
        same(store.facts("one"), TRUTH["one"].take(slice(0, 9)))
        assert store.facts("two").l0.tolist() == [TRUTH["two"].l0[4], 78.0]
        assert store.cells()[0].provenance["device"] == ["b", "a"]
        assert store.damage() == []


def test_stores_of_the_same_cells_merge_across_prepare(tmp_path):
    """Two ways to prepare a network round differently; the first store's rows are kept, the others are counted."""
    for name, shift in (("fold", 0), ("none", 1)):
        with Store(tmp_path / f"{name}.db", write=True) as store:
            store.register([cell("one", ROWS)])
            facts = TRUTH["one"]
            l0 = facts.l0 + shift * (np.arange(ROWS) == 7)
            store.append("one", 0, replace(facts, l0=l0), run=store.begin({"prepare": name}))
    done = merge([tmp_path / "fold.db", tmp_path / "none.db"], tmp_path / "all.db")
    assert [(again.rows, again.differ) for again in done.repeated] == [(ROWS, 1)]
    assert "none.db, cell one: left out 12 rows" in str(done.repeated[0])
    with Store(tmp_path / "all.db") as store:
        same(store.facts("one"), TRUTH["one"])


def test_one_run_with_two_values_is_an_error_and_nothing_is_written(tmp_path):
    one = fill(tmp_path / "1.db", [("one", range(6), "a")])
    two = Path(shutil.copy(one, tmp_path / "2.db"))
    assert merge([one, two], tmp_path / "copies.db").repeated == []
    change(two, "DELETE FROM samples WHERE position = 4")
    with Store(two, write=True) as store:
        store.append("one", 4, made(1, seed=9), run=1)
    with pytest.raises(StoreError, match=r"cell one: one run has two values for row 4; merge without .*2\.db"):
        merge([one, two], tmp_path / "all.db")
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".db") == ["1.db", "2.db", "copies.db"]
    assert list(tmp_path.glob(".*")) == []


def test_findings_proofs_arrays_and_failures_are_united(tmp_path):
    paths = [
        fill(tmp_path / f"{i}.db", [("one", range(4 * i, 4 * i + 4), "a")], "broke" if not i else None)
        for i in range(3)
    ]
    for path, findings, least in zip(paths, ([A], [B, A], []), (3, 5, 4), strict=True):
        with Store(path, write=True) as store:
            store.diagnose("one", findings)
            store.keep_arrays(path.name, a=np.arange(3))
            store.prove(ABOUT, {"row": Proof(least, path.name, 1)})
    with Store(paths[1], write=True) as store:
        store.supersede("two", "one")
    merge(paths[:2], tmp_path / "all.db")
    with Store(tmp_path / "all.db") as store:
        assert [vars(failure) for failure in store.failures()] == [
            {"key": "one", "start": 2, "stop": 10, "tries": 2, "error": "broke"}
        ]
    merge(paths[2:], tmp_path / "all.db")  # what is there stays
    with Store(tmp_path / "all.db") as store:
        assert store.findings() == {"one": [A, B]}
        assert store.failures() == []
        assert store.proofs(ABOUT) == {"row": Proof(5, "1.db", 1)}
        assert store.superseded() == {"two": "one"}
        assert all(store.arrays(path.name) for path in paths)
        assert [(status.state, status.done) for status in store.status()] == [("done", 12), ("waiting", 0)]
        assert store.damage() == []


def test_more_stores_than_sqlite_attaches_at_once(tmp_path):
    paths = [fill(tmp_path / f"{i}.db", [("two", [i], "a")]) for i in range(ROWS)]
    assert merge(paths, tmp_path / "all.db").rows == ROWS
    with Store(tmp_path / "all.db") as store:
        same(store.facts("two"), TRUTH["two"])


@pytest.mark.parametrize(
    ("prepare", "new", "words"),
    [
        (lambda: None, "2.db", "2.db is to be read and to be written; name another file"),
        (lambda: Path("all.db").write_text("notes" * 99), "all.db", "all.db: .*no store"),
        (lambda: Path("all.db").mkdir(), "all.db", "all.db is a folder"),
        (lambda: change(Path("2.db"), "PRAGMA user_version=99"), "all.db", "2.db .*schema is 99"),
        (lambda: change(Path("2.db"), "UPDATE samples SET l0 = 1e6"), "all.db", "2.db: the sample at position 0"),
        (lambda: Path("2.db").unlink(), "all.db", "there is no store 2.db"),
        (lambda: Path("2.db").write_bytes(b""), "all.db", "2.db is empty"),
    ],
)
def test_what_cannot_be_merged_is_refused(tmp_path, monkeypatch, prepare, new, words):
    monkeypatch.chdir(tmp_path)
    for i in (1, 2):
        fill(Path(f"{i}.db"), [("one", range(4 * i), f"{i}")])
    prepare()
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.db") if path.is_file()}
    with pytest.raises((StoreError, OSError), match=words):
        merge([Path("1.db"), Path("2.db")], Path(new))
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.db") if path.is_file()} == before


def test_stores_that_are_being_filled_are_not_merged(tmp_path):
    one = fill(tmp_path / "1.db", [("one", [1], "a")])
    with Store(one, write=True), pytest.raises(StoreBusy, match=r"1.db is being written by process"):
        merge([one], tmp_path / "all.db")
    with Store(tmp_path / "all.db", write=True), pytest.raises(StoreBusy, match=r"all.db is being written"):
        merge([one], tmp_path / "all.db")


def test_stores_of_two_models_under_one_key_are_not_merged(tmp_path):
    """An attribute is not part of a model's key; its answers tell the two apart."""
    paths = [fill(tmp_path / f"{i}.db", [("one", range(4 * i, 4 * i + 4), "a")]) for i in range(2)]
    for path, scale in zip(paths, (1.0, 1.01), strict=True):
        with Store(path, write=True) as store:
            store.keep_answers("one", scale * torch.tensor([[3.0, -2.0]]))
    with pytest.raises(StoreError, match=r"cell one: its model answers differently in .*1\.db"):
        merge(paths, tmp_path / "all.db")
    assert not (tmp_path / "all.db").exists()
    merge(paths[:1], tmp_path / "all.db")
    with pytest.raises(StoreError, match="answers differently"):
        merge(paths[1:], tmp_path / "all.db")


def test_chosen_cells_are_merged_with_their_arrays_alone(tmp_path):
    path = fill(tmp_path / "1.db", [("one", range(4), "a"), ("two", range(6), "b")])
    with Store(path, write=True) as store:
        store.register([cell("one", ROWS, data_hash="rows of one"), cell("two", ROWS, data_hash="rows of two")])
        for name in ("rows of one", "rows of two", "answers one", "answers two"):
            store.keep_arrays(name, logits=np.zeros((1, 2)))
    done = merge([path], tmp_path / "all.db", keys=["two"])
    assert (done.cells, done.rows) == (1, 6)
    with Store(tmp_path / "all.db") as store:
        same(store.facts("two"), TRUTH["two"].take(slice(0, 6)))
        present = {n: store.arrays(n) is not None for n in ("rows of one", "rows of two", "answers one", "answers two")}
        assert present == {"rows of one": False, "rows of two": True, "answers one": False, "answers two": True}
        assert store.damage() == []
