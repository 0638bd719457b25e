"""Losses: the definition of each for either goal, and that attacks descend on the one that is asked for."""

import pytest
import torch

import sigmazero as sz
from sigmazero.core import losses
from sigmazero.core.goal import LeaveClass, ReachClass
from tests.helpers.networks import TinyNet

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]], dtype=torch.float64)
Y = torch.tensor([0, 2])
WITH_LOSS = sorted(name for name, attack in sz.ATTACKS.items() if "loss" in attack.parameters())


@pytest.mark.parametrize("targeted", [False, True])
def test_definitions(targeted):
    goal, sign = ReachClass(Y) if targeted else LeaveClass(Y), -1 if targeted else 1
    likely = LOGITS.softmax(1)[torch.arange(2), Y]
    margin = sign * torch.tensor([1.0, -2.0], dtype=torch.float64)
    wanted = {
        "margin": margin,
        "hinge": margin.clamp(min=0),
        "cross-entropy": sign * likely.log(),
        "probability": sign * likely,
    }
    assert set(losses.LOSSES) == set(wanted)
    for name, values in wanted.items():
        torch.testing.assert_close(losses.get(name, goal)(LOGITS), values)


@pytest.mark.parametrize("name", WITH_LOSS)
def test_another_loss_leads_elsewhere(name):
    net, usual = TinyNet("rgb"), sz.get(name).parameters()["loss"]
    budget = 40 if name == "sparse-rs-inner" else 6  # values that are no ends do less
    results = {loss: sz.get(name, steps=30, loss=loss).run(net, net.x, net.y, budget=budget) for loss in losses.LOSSES}
    others = [results[loss].x_adv for loss in results if loss != usual]
    assert not all(torch.equal(results[usual].x_adv, x_adv) for x_adv in others)


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match="'margin'"):

        @losses.loss
        def margin(logits, goal):
            return goal.margin(logits)
