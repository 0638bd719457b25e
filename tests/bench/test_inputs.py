"""Inputs that no file holds are kept in the store, so that pages show them and a check can ask about them again."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from sigmazero.bench import loader as inputs
from sigmazero.bench.evaluate import evaluate
from sigmazero.bench.loader import Loader, clean_rows, keep, stored_rows
from sigmazero.data import DataError, Rows
from sigmazero.report.figures import FIGURES
from sigmazero.report.figures.figure import Request
from sigmazero.report.pages import samples
from sigmazero.report.runs import groups, load
from sigmazero.store.store import Store, StoreError
from tests.cli.conftest import sigmazero  # noqa: F401
from tests.helpers.networks import linear_problem
from tests.plans import clean


def eight_bit(n: int = 12):
    """A linear model and 8-bit images in single precision."""
    model, x, _ = linear_problem((3, 4, 4), n)
    x = (x * 255).round().float() / 255
    return model.float(), x, model.float()(x).argmax(1)


@settings(max_examples=30)
@given(
    npst.arrays(np.float32, (3, 2, 2), elements=st.floats(0, 1, width=32))
    | npst.arrays(np.float64, (3, 5), elements=st.floats(-1e6, 1e6))
    | npst.arrays(np.uint8, (3, 1, 2, 2)).map(lambda levels: levels.astype(np.float32) / 255)
    | npst.arrays(np.uint8, (3, 4)).map(lambda levels: levels.astype(np.float64) / 255)
)
def test_what_is_kept_comes_back_bit_by_bit(tmp_path_factory, images):
    rows = Rows(torch.from_numpy(images), torch.tensor([0, 9, 3]), torch.tensor([5, 2**40, 0]), "mine")
    with Store(tmp_path_factory.mktemp("s") / "s.db", write=True) as store:
        assert keep(store, rows)
        assert keep(store, rows)  # once is enough
        found = stored_rows(store, _about(rows))
    assert found is not None
    assert found.content_hash == rows.content_hash
    assert torch.equal(found.ids, rows.ids)


def _about(rows: Rows):
    """As much of a cell as `stored_rows` looks at."""
    return type("Info", (), {"data_hash": rows.content_hash, "dataset": rows.name})()


@pytest.mark.parametrize("target", [None, 2])
def test_tensors_are_shown(tmp_path, target):
    model, x, y = eight_bit()
    evaluate(model, (x, y), ["sigma-zero", "fmn"], store=tmp_path / "s.db", steps=20, target=target)
    with Store(tmp_path / "s.db") as store:
        found = groups(load(store))
        made = samples.build(found, clean(store))
        assert made.notes == []
        assert made.data["sets"][0]["shape"] == [3, 4, 4]
        shown = clean_rows(store, store.cells()[0], Loader())
        assert torch.equal(shown.images, x if target is None else x[y != target])
        (path,) = FIGURES["pictures"].write(Request(found, store, clean(store)), tmp_path / "a.png")
        assert path.exists()


@pytest.mark.parametrize("why", ["asked", "large"])
def test_what_is_not_kept_is_said(tmp_path, monkeypatch, why):
    model, x, y = eight_bit()
    monkeypatch.setattr(inputs, "MAX_BYTES", inputs.MAX_BYTES if why == "asked" else x.numel() - 1)
    done = evaluate(model, (x, y), store=tmp_path / "s.db", steps=10, keep_inputs=why != "asked")
    assert done.verify().rows == len(x)  # they are still in memory
    with Store(tmp_path / "s.db") as store:
        assert store.arrays(store.cells()[0].data_hash) is None
        with pytest.raises(DataError, match=r"were tensors, and the store does not hold them: .* save them as \.npz"):
            clean_rows(store, store.cells()[0], Loader())
        (note,) = samples.build(groups(load(store)), clean(store)).notes
        assert "save them as .npz" in note


def test_damaged_inputs_are_named(tmp_path):
    model, x, y = eight_bit()
    evaluate(model, (x, y), store=tmp_path / "s.db", steps=5)
    with Store(tmp_path / "s.db", write=True) as store:
        info = store.cells()[0]
        store._base.execute("UPDATE arrays SET npz = x'00ff' WHERE name = ?", (info.data_hash,))
        with pytest.raises(StoreError, match=f"the arrays {info.data_hash[:24]} cannot be read"):
            clean_rows(store, info, Loader())
