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
from sigmazero.store.store import Store, StoreError
from tests.helpers.networks import linear_problem


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
def test_tensors_are_found_again(tmp_path, target):
    model, x, y = eight_bit()
    evaluate(model, (x, y), store=tmp_path / "s.db", steps=5, target=target)
    with Store(tmp_path / "s.db") as store:
        found = clean_rows(store, store.cells()[0], Loader())
    assert torch.equal(found.images, x if target is None else x[y != target])


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


def test_damaged_inputs_are_named(tmp_path):
    model, x, y = eight_bit()
    evaluate(model, (x, y), store=tmp_path / "s.db", steps=5)
    with Store(tmp_path / "s.db", write=True) as store:
        info = store.cells()[0]
        store._base.execute("UPDATE arrays SET npz = x'00ff' WHERE name = ?", (info.data_hash,))
        with pytest.raises(StoreError, match=f"the arrays {info.data_hash[:24]} cannot be read"):
            clean_rows(store, info, Loader())
