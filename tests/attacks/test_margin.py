"""A success can be asked to hold by a margin: every attack aims for it, and nothing less is reported."""

import pytest
import torch

import sigmazero as sz
from sigmazero.core.result import Outcome
from tests.attacks.test_attacks import EVERY, how, small
from tests.helpers.networks import TinyNet, linear_problem


@pytest.mark.parametrize("name", EVERY)
def test_every_attack_aims_for_the_margin(name):
    net, attack = TinyNet("conv"), small(name)
    plain = attack.run(net, net.x, net.y, **how(attack))
    least = float(-plain.margin[plain.success].median()) * 1.5 + 0.05  # more than most have by chance
    result = attack.run(net, net.x, net.y, margin=least, **how(attack))
    assert (result.margin[result.success] <= -least).all()
    fresh = net(result.x_adv)
    own = fresh.gather(1, net.y[:, None]).squeeze(1)
    others = fresh.scatter(1, net.y[:, None], -torch.inf).amax(1)
    assert torch.allclose(result.margin, own - others)  # the raw one
    assert result.success.any()
    assert not (plain.margin[plain.success] <= -least).all()


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
