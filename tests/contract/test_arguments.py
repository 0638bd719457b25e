"""What `run` and `check` are given: nothing is ignored without a word, and both know the same models."""

from typing import Any

import numpy as np
import pytest
import torch

import sigmazero as sz

X = torch.rand(4, 6, generator=torch.Generator().manual_seed(0))
Y = torch.zeros(4, dtype=torch.long)
TAKE = {"start": {"bb", "bb-dataset", "label-swap", "swap-search"}, "pool": {"bb", "bb-dataset"}}


def never_asked(x):
    raise AssertionError("the model was asked")


@pytest.mark.parametrize("argument", TAKE)
def test_a_refusal_names_the_attacks_that_take_an_argument(argument):
    given: Any = {argument: X}
    with pytest.raises(ValueError, match=f"fmn .*{argument}=") as caught:
        sz.get("fmn").run(never_asked, X, Y, **given)
    assert all(taker in str(caught.value) for taker in TAKE[argument])
    assert {name for name, attack in sz.ATTACKS.items() if argument in attack.takes} == TAKE[argument]


def test_check_knows_the_models_that_run_knows():
    def scores(rows: np.ndarray) -> np.ndarray:
        return np.stack([rows.sum(1) * 0, rows.sum(1) - 3], 1)

    y = torch.from_numpy(scores(X.numpy())).argmax(1)
    result = sz.get("query-swap", steps=40).run(scores, X, y)
    checked = sz.check(scores, X, y, result.x_adv)
    assert result.success.any()
    assert torch.equal(checked.success, result.success)
    assert torch.equal(checked.l0, result.l0)


def test_check_of_no_rows_is_an_empty_result():
    result = sz.check(never_asked, X[:0], Y[:0], X[:0])
    assert (len(result), result.x_adv.shape) == (0, (0, 6))
    assert len(sz.get("sigma-zero", steps=2).run(never_asked, X[:0], Y[:0])) == 0


def test_a_model_without_weights_in_memory_is_named():
    """Inputs follow a model to its device, but not to the one that holds no values."""
    model = torch.nn.Linear(6, 3, device="meta")
    with pytest.raises(ValueError, match=r"model is on meta.*inputs are on cpu"):
        sz.get("sigma-zero").run(model, X, Y)


def test_a_run_counts_its_seconds():
    model = torch.nn.Linear(6, 3).requires_grad_(False)
    assert sz.get("fmn", steps=3).run(model, X, Y).seconds > 0
