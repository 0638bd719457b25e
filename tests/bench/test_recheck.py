import sqlite3

import numpy as np
import pytest

from sigmazero.bench.cells import Loader
from sigmazero.bench.verify import verify
from sigmazero.store.facts import COLUMNS, Facts
from sigmazero.store.pack import pack, pack_indices
from sigmazero.store.store import Store
from tests.plans import PLAN, run


def check(path="s.db", **more):
    with Store(path) as store:
        return verify(store, Loader(), **more)


def rewrite(key, change, path="s.db"):
    """Change the facts of a cell's first batch behind the store's back."""
    with Store(path) as store:
        facts = store.facts(key).take(slice(0, 8))
    columns = {name: values.copy() for name, values in vars(facts).items()}
    change(columns)
    new = Facts(**columns)
    blobs = (
        pack([getattr(new, name) for name in COLUMNS]),
        pack([*pack_indices(new.offsets, new.index), new.value], compress=True),
    )
    with sqlite3.connect(path) as base:
        batch = base.execute(
            "SELECT batches.id FROM batches JOIN cells ON cells.id = cell WHERE key = ? AND start = 0", (key,)
        ).fetchone()[0]
        base.execute("UPDATE facts SET columns = ?, changes = ? WHERE batch = ?", (*blobs, batch))
    base.close()


def test_a_good_store_has_nothing_to_say(folder):
    for precision in ("fp32", "fp64"):
        text = PLAN.replace("steps = 30", f"steps = 30\nprecision = '{precision}'")
        run(text, f"{precision}.db")
        verdict = check(f"{precision}.db", export_8bit=True)
        assert verdict.rows == 144
        assert verdict.disagreements == verdict.skipped == []
        assert verdict.survive_8bit is not None
        assert 0 < verdict.survive_8bit <= verdict.found


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
    ],
)
def test_what_was_tampered_with_is_found(folder, change, word):
    cells, _, _ = run(PLAN.replace(', "fmn", "vfga"', ""), "s.db")
    assert check().disagreements == []
    rewrite(cells[0].info.key, change)
    found = check().disagreements
    assert any(word in str(one) for one in found)
    assert {one.cell.key for one in found} == {cells[0].info.key}


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


def test_what_is_not_here_is_said_not_to_be_checked(folder):
    run(PLAN, "s.db")
    (folder / "mine.npz").unlink()
    verdict = check()
    assert verdict.disagreements == []
    assert len(verdict.skipped) == 6
    assert "mine.npz" in str(verdict.skipped[0])
