import json
import sqlite3
from typing import Any

import numpy as np
import pytest
import torch

from sigmazero.bench.answers import probe, same_answers
from sigmazero.bench.verify import verify
from sigmazero.core.result import Outcome
from sigmazero.store.checksums import TABLES, blob_sum, put, selected
from sigmazero.store.facts import COLUMNS, Facts
from sigmazero.store.pack import pack, pack_indices
from sigmazero.store.store import Store
from tests.plans import PLAN, run, trusting


def check(path="s.db", **more):
    with Store(path) as store:
        return verify(store, trusting(), **more)


def refresh(base: sqlite3.Connection) -> None:
    """Write checksums that fit what is in the store now."""
    keys = dict(base.execute("SELECT id, key FROM cells"))
    for batch, *blobs in base.execute("SELECT batch, columns, changes FROM facts").fetchall():
        fitting = (*map(blob_sum, blobs), batch)
        base.execute("UPDATE batches SET columns_sum = ?, changes_sum = ? WHERE id = ?", fitting)
    for table, (_, columns) in TABLES.items():
        for *values, _ in base.execute(f"SELECT {selected(table)} FROM {table}").fetchall():
            put(base, table, keys[values[columns.index("cell")]] if "cell" in columns else None, *values)


def rewrite(key, change, path="s.db"):
    """Change the facts of a cell's first batch behind the store's back, with checksums that fit."""
    with sqlite3.connect(path) as base:
        batch, size = base.execute(
            "SELECT batches.id, count FROM batches JOIN cells ON cells.id = cell WHERE key = ? AND start = 0", (key,)
        ).fetchone()
    with Store(path) as store:
        facts = store.facts(key).take(slice(0, size))
    columns = {name: values.copy() for name, values in vars(facts).items()}
    change(columns)
    new = Facts(**columns)
    blobs = (
        pack([getattr(new, name) for name in COLUMNS]),
        pack([*pack_indices(new.offsets, new.index), new.value], compress=True),
    )
    with base:
        base.execute("UPDATE facts SET columns = ?, changes = ? WHERE batch = ?", (*blobs, batch))
        refresh(base)
    base.close()


def test_a_good_store_has_nothing_to_say(folder):
    for precision in ("fp32", "fp64"):
        text = PLAN.replace("steps = 30", f"steps = 30\nprecision = '{precision}'")
        run(text, f"{precision}.db")
        done = check(f"{precision}.db", export_8bit=True)
        assert done.rows == 144
        assert done.disagreements == done.skipped == []
        assert done.survive_8bit is not None
        assert 0 < done.survive_8bit <= done.found


def test_a_good_targeted_store_has_nothing_to_say(folder):
    text = PLAN.replace("batch_size", "goal = 'targeted'\ntarget = 2\nbatch_size").replace(', "vfga"', "")
    run(text, "s.db")
    assert check().disagreements == []


def _value(c):
    c["value"][0] = 1.5


def _small(c):
    c["value"][0] = np.nextafter(c["value"][0] * 0 + 0.5, 1) if c["value"][0] < 0.25 else c["value"][0] / 2


def _l0(c):
    c["l0"][np.isfinite(c["l0"])] += 1


def _pixels(c):
    c["l0_pixel"][np.isfinite(c["l0"])] += 1


def _fewer(c):
    # Give back the first changed feature: one change less, so either the count or the outcome is wrong.
    first = int(np.flatnonzero(np.diff(c["offsets"]))[0])
    c["index"], c["value"] = c["index"][1:], c["value"][1:]
    c["offsets"][first + 1 :] -= 1
    c["l0"][first] -= 1


def _margin(c):
    c["margin"] += 0.01


def _label(c):
    c["label"][3] += 1


def _row(c):
    c["row"][3] += 100


def _prediction(c):
    c["prediction"][:] = (c["prediction"] + 1) % 4


def _clean(c):
    c["clean_prediction"][:] = (c["clean_prediction"] + 1) % 4


def _far(c):
    c["index"][-1] = 60


def _no_margin(c):
    c["margin"][0] = np.nan


def _already(c):
    c["outcome"][c["outcome"] == Outcome.FOUND] = Outcome.ALREADY


def _found(c):
    # An example that is the clean input.
    first = int(np.flatnonzero(np.diff(c["offsets"]))[0])
    gone = slice(*c["offsets"][first : first + 2])
    c["index"], c["value"] = np.delete(c["index"], gone), np.delete(c["value"], gone)
    c["offsets"][first + 1 :] -= gone.stop - gone.start
    c["l0"][first] = c["l0_pixel"][first] = 0


def _outcome(c):
    c["outcome"][0] = 77


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (_value, "box"),
        (_small, "margin"),
        (_l0, "l0 is not"),
        (_pixels, "l0_pixel"),
        (_fewer, "margin"),
        (_margin, "margin"),
        (_label, "label"),
        (_row, "row of 1"),
        (_prediction, "prediction"),
        (_clean, "clean_prediction"),
        (_far, "feature 60"),
        (_no_margin, "margin"),
        (_already, "not that of the clean input"),
        (_found, "nothing is changed"),
        (_outcome, "no such outcome"),
    ],
)
def test_what_was_forged_is_found_by_asking_the_model(folder, change, word):
    cells, _, _ = run(PLAN.replace(', "fmn", "vfga"', ""), "s.db", batch_size=24)  # one batch
    assert check().disagreements == []
    rewrite(cells[0].info.key, change)
    found = check().disagreements
    assert any(word in str(one) for one in found)
    assert {one.cell.key for one in found} == {cells[0].info.key}


@pytest.mark.parametrize(("said", "other"), [("BEYOND_BUDGET", "FOUND"), ("FOUND", "BEYOND_BUDGET")])
def test_an_outcome_that_does_not_fit_the_budget_is_found(folder, said, other):
    text = PLAN.replace(', "fmn", "vfga"', "").replace("data = [", "budgets = [3]\ndata = [")
    cells, _, _ = run(text, "s.db", batch_size=24)
    assert check().disagreements == []

    def change(c):
        rows = c["outcome"] == Outcome[said]
        assert rows.any()
        c["outcome"][rows] = Outcome[other]

    rewrite(cells[0].info.key, change)
    found = check().disagreements
    assert found
    assert all("within the budget" in str(one) for one in found)


def test_other_weights_and_other_rows_are_found(folder):
    run(PLAN, "s.db")
    (folder / "net.py").write_text((folder / "net.py").read_text().replace("return Net(0)", "return Net(1)"))
    found = check().disagreements
    assert len(found) == 3
    assert "other weights" in str(found[0])
    with np.load("mine.npz") as file:
        arrays = dict(file)
    np.savez("mine.npz", images=arrays["images"][::-1], labels=arrays["labels"])
    assert sum("other content" in str(one) for one in check().disagreements) == 6


def test_other_answers_are_found(folder):
    cells, _, _ = run(PLAN.replace(', "fmn", "vfga"', ""), "s.db")
    loader = trusting()
    with Store("s.db", write=True) as store:
        for cell in cells:
            fresh = probe(loader.model(cell.question.model), loader.rows(cell.question.data).images)
            store.keep_answers(cell.info.key, fresh)
            kept = store.answers(cell.info.key)
            assert kept is not None
            assert same_answers(kept, fresh)
    assert check().disagreements == []
    source = folder / "net.py"
    source.write_text(source.read_text().replace("sum(2)", "sum(2) * 1.01"))
    found = check().disagreements
    assert [str(one).split(": ")[-1] for one in found] == [
        "the model here answers otherwise than the one that was attacked"
    ] * 2


def test_answers_are_compared_up_to_rounding():
    logits = torch.tensor([[3.0, -50.0], [torch.nan, torch.inf]])
    near, far = logits.clone(), logits.clone()
    near[0, 0] += 4e-3
    far[0, 0] += 6e-3
    assert same_answers(logits, near)
    assert not same_answers(logits, far)
    assert not same_answers(logits, logits[:1])
    network = torch.nn.Sequential(torch.nn.Dropout(0.9), torch.nn.Linear(3, 2))
    x = torch.rand(40, 3)
    assert torch.equal(probe(network, x), probe(network, x))  # as the model answers in evaluation
    assert probe(network, x).shape == (16, 2)
    assert probe(network, x[:3]).shape == (3, 2)
    assert network.training


@pytest.mark.parametrize("size", [0, -1, 1.5])
def test_batch_sizes_that_check_nothing_are_refused(folder, size):
    run(PLAN.replace(', "fmn", "vfga"', ""), "s.db")
    with pytest.raises(ValueError, match="batch_size="):
        check(batch_size=size)


def test_a_description_that_does_not_fit_its_key_is_found(folder):
    """Forged with checksums that fit, field by field."""
    cells, _, _ = run(PLAN.replace(', "fmn", "vfga"', ""), "s.db")
    key = cells[0].info.key
    changes: dict[str, Any] = {
        **{"seed": 1, "unit": "pixel", "budget": 3, "precision": "fp64", "version": 9, "steps": 31},
        **{
            "identity": {"format": 2},
            "goal": "targeted",
            "parameters": {"steps": 30},
            "bounds": [0.0, 255.0],
            "data_hash": "0" * 64,
            "model_sha256": "0" * 64,
        },
    }
    whole = (folder / "s.db").read_bytes()
    for name, value in changes.items():
        (folder / "s.db").write_bytes(whole)
        with sqlite3.connect("s.db") as base:
            info = json.loads(base.execute("SELECT info FROM cells WHERE key = ?", (key,)).fetchone()[0])
            text = json.dumps({**info, name: value}, sort_keys=True)
            base.execute("UPDATE cells SET info = ? WHERE key = ?", (text, key))
            refresh(base)
        base.close()
        assert any(f"its {name} does not fit its key" in str(one) for one in check().disagreements), name


def test_what_is_not_here_is_said_not_to_be_checked(folder):
    run(PLAN, "s.db")
    (folder / "mine.npz").unlink()
    done = check()
    assert done.disagreements == []
    assert len(done.skipped) == 6
    assert "mine.npz" in str(done.skipped[0])
