"""A success can be asked to hold by a margin: what a clean input needs, and what is refused."""

import pytest
import torch

import sigmazero as sz
from sigmazero.core.result import Outcome
from tests.helpers.networks import TinyNet, linear_problem


@pytest.mark.parametrize("targeted", [False, True])
def test_a_clean_input_must_hold_by_the_margin_too(targeted):
    model, x, y = linear_problem((12,), 40)
    logits = model(x).detach()
    top = logits.topk(2, 1)
    goal = y if targeted else top.indices[:, 1]  # reached already, by some lead
    lead = top.values[:, 0] - top.values[:, 1]
    least = float(lead.median())
    result = sz.get("sigma-zero", steps=100).run(model, x, goal, targeted=targeted, margin=least)
    assert torch.equal(result.outcome == Outcome.ALREADY, lead >= least)
    assert (result.margin[result.success] <= -least).all()
    assert (result.outcome == Outcome.FOUND).any()


@pytest.mark.parametrize("margin", [-0.1, float("nan"), float("inf"), "1", True, None])
def test_what_is_no_margin_is_refused(margin):
    model, x, y = linear_problem((4,), 2)
    with pytest.raises(ValueError, match="must be a finite number, 0 or more"):
        sz.get("sigma-zero", steps=1).run(model, x, y, margin=margin)


def test_no_margin_changes_nothing():
    net, attack = TinyNet("conv"), sz.get("sigma-zero", steps=20)
    one, two = attack.run(net, net.x, net.y), attack.run(net, net.x, net.y, margin=0)
    assert torch.equal(one.x_adv, two.x_adv)
    assert torch.equal(one.forwards, two.forwards)
