"""A success can be asked to hold by a margin, and so must a clean input that is wrong already."""

import pytest
import torch

import sigmazero as sz
from sigmazero.core.result import Outcome
from tests.helpers.networks import linear_problem


@pytest.mark.parametrize("targeted", [False, True])
def test_a_clean_input_must_hold_by_the_margin_too(targeted):
    model, x, y = linear_problem((12,), 40)
    top = model(x).detach().topk(2, 1)
    goal = y if targeted else top.indices[:, 1]  # reached already, by some lead
    lead = top.values[:, 0] - top.values[:, 1]
    least = float(lead.median())
    result = sz.get("sigma-zero", steps=100).run(model, x, goal, targeted=targeted, margin=least)
    assert torch.equal(result.outcome == Outcome.ALREADY, lead >= least)
    assert (result.margin[result.success] <= -least).all()
    assert (result.outcome == Outcome.FOUND).any()
    for margin in (-0.1, float("nan"), float("inf"), "1", True, None):
        with pytest.raises(ValueError, match=f"margin={margin!r} must be a finite number, 0 or more"):
            sz.get("sigma-zero", steps=1).run(model, x, y, margin=margin)
