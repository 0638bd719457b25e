"""Stores are merged in any order and any number of steps to the same store, and only if they agree."""

import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import torch

from sigmazero.store import Store, StoreBusy, StoreError
from sigmazero.store.merge import merge
from tests.cli.conftest import sigmazero  # noqa: F401
from tests.plans import PLAN, assert_same, contents, run
from tests.store.test_alterations import sound  # noqa: F401
from tests.store.test_store import cell, made

pytestmark = pytest.mark.slow

KEYS = ("one", "two")
ROWS = 12
TRUTH = {key: made(ROWS, seed) for seed, key in enumerate(KEYS)}


def dump(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table, numbers and checksums too."""
    base = sqlite3.connect(path)
    names = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {name: sorted(base.execute(f"SELECT * FROM {name}"), key=repr) for name in names}
    base.close()
    return found


def fill(path: Path, batches, error: str | None = None) -> Path:
    """A store with batches: the cell, the places, the run, and the seconds of a row."""
    with Store(path, write=True) as store:
        store.register([cell(key, ROWS, origin={"model": path.name}) for key in KEYS])
        runs: dict[str, int] = {}
        for key, places, made_by, seconds in batches:
            fresh = [place for place in places if not store.stored(key)[place]]
            if not fresh:
                continue
            runs.setdefault(made_by, 0)
            runs[made_by] = runs[made_by] or store.begin({"device": made_by})
            facts = TRUTH[key].take(np.array(fresh))
            facts.seconds[:] = seconds
            store.append(key, fresh, facts, run=runs[made_by], seconds=seconds * len(fresh), peak_process=len(made_by))
        if error is not None:
            store.fail(KEYS[0], error, (2, 2 + len(error)), tries=len(batches))
    return path


def test_a_row_keeps_the_provenance_of_its_run(tmp_path):
    one = fill(tmp_path / "1.db", [("one", range(5), "b", 0.5)])
    two = fill(tmp_path / "2.db", [("one", range(3, 9), "a", 0.25), ("two", [4], "c", 1.0)])
    merge([one, two], tmp_path / "all.db")
    with Store(tmp_path / "all.db") as store:
        assert {tuple(places): about["device"] for places, about in store.batches("one")} == {
            (0, 1, 2): "b",
            (3, 4, 5, 6, 7, 8): "a",
        }
        assert [about["device"] for _, about in store.batches("two")] == ["c"]
        assert store.cells()[0].provenance["device"] == ["a", "b"]
        assert store.cells()[0].provenance["seconds"] == pytest.approx(3 * 0.5 + 6 * 0.25)


@pytest.mark.parametrize("column", ["l0", "prediction", "margin", "value", "index"])
def test_facts_that_contradict_each_other_are_refused(tmp_path, column):
    one = fill(tmp_path / "1.db", [("one", range(6), "a", 0.5)])
    with Store(tmp_path / "2.db", write=True) as store:
        store.register([cell("one", ROWS)])
        facts = TRUTH["one"].take(slice(4, 9))
        assert facts.offsets[1] > 0
        values = getattr(facts, column).copy()
        values[0] += 1
        store.append("one", 4, type(facts)(**{**vars(facts), column: values}), run=store.begin({}))
    said = rf"a against m on d \[one\]: .* of row {facts.row[0]} is another in .*1.db than in .*2.db"
    with pytest.raises(StoreError, match=said):
        merge([one, tmp_path / "2.db"], tmp_path / "all.db")
    assert sorted(path.name for path in tmp_path.glob("*.db")) == ["1.db", "2.db"]


def test_everything_travels(sound, tmp_path):  # noqa: F811
    shutil.copy(sound, tmp_path / "s.db")
    done = merge([tmp_path / "s.db"], tmp_path / "all.db")
    assert (done.cells, done.lacking) == (4, 7)
    with Store(sound) as before, Store(tmp_path / "all.db") as after:
        assert sorted(before.cell_keys()) == sorted(after.cell_keys())
        assert before.findings() == after.findings()
        assert after.failures() == [each for each in before.failures() if not before.stored(each.key).all()]
        for info in before.cells():
            assert after.cell(info.key) == before.cell(info.key)
            assert np.array_equal(before.traced(info.key), after.traced(info.key))
            if before.traced(info.key)[2]:
                assert before.trace(info.key, 2).pack() == after.trace(info.key, 2).pack()
            answers = before.answers(info.key), after.answers(info.key)
            assert (None in answers) or torch.equal(*answers)  # type: ignore[arg-type]
            kept = info.data_hash
            assert before.inputs(kept) == after.inputs(kept) is not None
    assert_same(contents(sound), contents(tmp_path / "all.db"))


def test_a_failure_outlives_what_is_not_done(tmp_path):
    one = fill(tmp_path / "1.db", [("one", range(6), "a", 0.5)], error="it broke")  # rows 2 up to 10
    two = fill(tmp_path / "2.db", [("one", range(6, 9), "a", 0.5)])
    three = fill(tmp_path / "3.db", [("one", range(9, 12), "a", 0.5)])
    merge([one, two], tmp_path / "part.db")
    with Store(tmp_path / "part.db") as store:
        assert [vars(failure) for failure in store.failures()] == [
            {"key": "one", "start": 2, "stop": 10, "tries": 1, "error": "it broke"}
        ]
        assert store.status()[0].state == "failed"
    merge([three, tmp_path / "part.db"], tmp_path / "all.db")
    with Store(tmp_path / "all.db") as store:
        assert store.failures() == []
        assert store.status()[0].state == "done"


def test_models_that_answer_otherwise_are_not_mixed(tmp_path):
    paths = [fill(tmp_path / f"{i}.db", [("one", [i], "a", 0.5)]) for i in range(3)]
    for path, logits in zip(paths, ([1.0, 2.0], [1.0 + 1e-6, 2.0], [1.0, 2.5]), strict=True):
        with Store(path, write=True) as store:
            store.keep_answers("one", torch.tensor([logits], dtype=torch.float64))
    merge(paths[:2], tmp_path / "all.db")
    with pytest.raises(StoreError, match=r"the model of .*2.db answers otherwise than that of .*0.db"):
        merge(paths[::2], tmp_path / "other.db")


def newer(path: Path) -> None:
    base = sqlite3.connect(path)
    base.execute("PRAGMA user_version=99")
    base.close()


def shortened(path: Path) -> None:
    base = sqlite3.connect(path)
    base.execute("DELETE FROM batches WHERE id = 1")
    base.commit()
    base.close()


@pytest.mark.parametrize(
    ("prepare", "words", "said"),
    [
        (lambda: None, ("1.db", "2.db", "-o", "2.db"), "2.db is to be read and to be written; name another file"),
        (lambda: Path("all.db").write_text("notes"), ("1.db", "-o", "all.db"), "all.db is damaged or no store"),
        (lambda: Path("all.db").mkdir(), ("1.db", "-o", "all.db"), "all.db is a folder"),
        (lambda: newer(Path("2.db")), ("1.db", "2.db", "-o", "all.db"), "2.db was written by a newer sigmazero"),
        (lambda: shortened(Path("2.db")), ("1.db", "2.db", "-o", "all.db"), "2.db: "),
        (lambda: None, ("1.db", "3.db", "-o", "all.db"), "there is no store 3.db"),
        (lambda: Path("2.db").write_bytes(b""), ("1.db", "2.db", "-o", "all.db"), "2.db is empty"),
    ],
)
def test_what_cannot_be_merged_is_refused_in_one_line(sigmazero, tmp_path, monkeypatch, prepare, words, said):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    for i in (1, 2):
        fill(Path(f"{i}.db"), [("one", range(4 * i), f"{i}", 0.5)])
    prepare()
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.db") if path.is_file()}
    done = sigmazero("merge", *words)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.db") if path.is_file()} == before


def test_stores_that_are_being_filled_are_not_merged(tmp_path):
    one = fill(tmp_path / "1.db", [("one", [1], "a", 0.5)])
    with Store(one, write=True), pytest.raises(StoreBusy, match=r"1.db is being written by process"):
        merge([one], tmp_path / "all.db")
    with Store(tmp_path / "all.db", write=True), pytest.raises(StoreBusy, match=r"all.db is being written"):
        merge([one], tmp_path / "all.db")


def test_different_plans_are_merged_only_when_told(sigmazero, folder):  # noqa: F811
    (folder / "other.toml").write_text(PLAN.replace("steps = 30", "steps = 4"))
    for plan in ("plan.toml", "other.toml"):
        assert sigmazero("run", plan, "--trust-code", "--device", "cpu", "--limit", 4).exit_code == 0
    words = ("merge", "runs/plan-limit-4.db", "runs/other-limit-4.db", "-o", "all.db")
    refused = sigmazero(*words)
    assert refused.exit_code == 2
    assert "runs/plan-limit-4.db was filled by the plan plan (" in refused.stderr
    assert refused.stderr.endswith("any will do (on the command line: --any)\n")
    assert sigmazero(*words, "--any").exit_code == 0
    run(PLAN, "unknown.db")  # says nothing of a plan
    assert sigmazero("merge", "unknown.db", "runs/plan-limit-4.db", "-o", "third.db").exit_code == 0


def test_shards_merged_are_the_facts_of_one_run(sigmazero, folder):  # noqa: F811
    (folder / "traced.toml").write_text(
        PLAN.replace('"vfga"]', '"seen"]') + '[attacks.seen]\nattack = "sigma-zero"\nsteps = 6\ntrace = true\n'
    )
    assert sigmazero("run", "traced.toml", "--trust-code", "--device", "cpu").exit_code == 0
    parts = [f"runs/traced-part-{i}-of-5.db" for i in range(1, 6)]
    for i in range(1, 6):
        assert sigmazero("run", "traced.toml", "--trust-code", "--device", "cpu", "--shard", f"{i}/5").exit_code == 0
    some = [sigmazero("merge", part, "-o", "all.db") for part in parts[:3]]
    assert any("are still to be run" in each.stderr for each in some)  # five parts of six cells cut one
    done = sigmazero("merge", *parts[::-1], "-o", "all.db")
    assert done.exit_code == 0, done.output
    assert "144 rows of 6 cells from 5 stores" in done.stdout
    assert done.stderr == ""
    assert_same(dict(sorted(contents("all.db").items())), dict(sorted(contents("runs/traced.db").items())))
    with Store("all.db") as merged, Store("runs/traced.db") as one:
        assert merged.findings() == one.findings()
        traced = [key for key in one.cell_keys() if one.traced(key).any()]
        assert len(traced) == 2
        for key in traced:
            assert all(merged.trace(key, row).pack() == one.trace(key, row).pack() for row in range(24))
        assert {json.dumps(info.provenance["shard"]) for info in merged.cells()} != {"null"}
    assert "0 rows stored" in sigmazero("run", "traced.toml", "--trust-code", "--store", "all.db").stdout
    assert "0 disagreements" in sigmazero("verify", "all.db", "--trust-code").stdout


@pytest.mark.parametrize("point", ["file.written", "file.replaced"])
def test_killed_it_leaves_nothing_or_all(children, tmp_path, point):
    paths = [fill(tmp_path / f"{i}.db", [("one", range(4 * i, 4 * i + 4), "a", 0.5)]) for i in range(3)]
    new, whole = tmp_path / "all.db", tmp_path / "whole.db"
    merge(paths, whole)
    assert children.killed(point, merge, paths, new)
    assert new.exists() == (point == "file.replaced")
    merge(paths, new)
    assert dump(new).keys() == dump(whole).keys()
    written = {name: rows for name, rows in dump(new).items() if name != "writer"}
    assert written["batches"] == dump(whole)["batches"]
    assert written["cells"] == dump(whole)["cells"]
