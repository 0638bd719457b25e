"""Losses: what each is for either goal, and that every attack with a loss takes every one of them."""

import pytest
import torch

import sigmazero as sz
from sigmazero.core import losses
from sigmazero.core.goal import LeaveClass, ReachClass
from tests.helpers.networks import TinyNet

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]], dtype=torch.float64)
Y = torch.tensor([0, 2])
WITH_LOSS = sorted(name for name, attack in sz.ATTACKS.items() if "loss" in attack.parameters())


def goal(targeted: bool):
    return ReachClass(Y) if targeted else LeaveClass(Y)


@pytest.mark.parametrize("targeted", [False, True])
def test_what_each_is(targeted):
    aim, sign = goal(targeted), -1 if targeted else 1
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
        torch.testing.assert_close(losses.named(name, aim)(LOGITS), values)


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("name", sorted(losses.LOSSES))
def test_each_falls_towards_the_goal(name, targeted):
    aim = goal(targeted)
    nearer = LOGITS.clone()
    nearer[torch.arange(2), Y] += 1.0 if targeted else -1.0
    before, after = (losses.named(name, aim)(z) for z in (LOGITS, nearer))
    assert (after <= before).all()
    assert (after < before).any()


@pytest.mark.parametrize("loss", sorted(losses.LOSSES))
@pytest.mark.parametrize("name", WITH_LOSS)
def test_every_attack_with_a_loss_takes_every_loss(name, loss):
    net = TinyNet("rgb")
    attack = sz.get(name, steps=30, loss=loss)
    result = attack.run(net, net.x, net.y, budget=40 if attack.kind == "budget" else None)
    assert result.success.any()


@pytest.mark.parametrize("name", WITH_LOSS)
def test_another_loss_leads_elsewhere(name):
    net, usual = TinyNet("rgb"), sz.get(name).parameters()["loss"]
    other = "cross-entropy" if usual != "cross-entropy" else "margin"
    budget = 40 if name == "sparse-rs-inner" else 6  # values that are no ends do less
    one, two = (sz.get(name, steps=30, loss=loss).run(net, net.x, net.y, budget=budget) for loss in (usual, other))
    assert not torch.equal(one.x_adv, two.x_adv)


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match="'margin'"):

        @losses.loss
        def margin(logits, goal):
            return goal.margin(logits)
