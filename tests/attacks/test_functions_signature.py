"""The function for people who want a tensor back says which parameters it takes."""

import inspect
from dataclasses import fields

import torch

import sigmazero as sz
from sigmazero.core.attack import Attack


def test_every_parameter_of_the_attack_and_of_a_run_is_there_with_its_default():
    found = {name: each.default for name, each in inspect.signature(sz.sigma_zero).parameters.items()}
    attack = {each.name: each.default for each in fields(sz.get("sigma-zero")) if each.name != "name"}
    run = {name: each.default for name, each in inspect.signature(Attack.run).parameters.items() if name != "self"}
    assert found == run | attack


def test_they_reach_the_attack_and_the_run():
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
    x = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    y = model(x).argmax(1)
    expected = sz.get("sigma-zero", steps=7, step_size=0.5, optimizer="sgd").run(model, x, y, unit="pixel", seed=3)
    got = sz.sigma_zero(model, x, y, 7, step_size=0.5, optimizer="sgd", unit="pixel", seed=3)
    assert torch.equal(got, expected.x_adv)
