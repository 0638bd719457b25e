"""Changes that cost differently: what a budget means then, and that the unit of costs means nothing."""

from typing import Any

import pytest
import torch
from torch import nn

import sigmazero as sz
from tests.helpers.networks import linear_problem

IN_SPACES = [name for name, attack in sorted(sz.ATTACKS.items()) if attack.spaces]
UNITS = (1024.0, 1 / 1024, 3.0)


@pytest.mark.parametrize("precision", [None, "bf16"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("genetic", {"steps": 20}),
        ("query-swap", {"steps": 300}),
        ("sigma-swap", {"queries": 400}),
        ("sigma-zero", {"steps": 400}),
        ("swap-search", {}),
    ],
)
def test_a_sample_stops_at_a_point_within_the_budget_whatever_it_costs(name, options, precision):
    """One dear change fools the network, and so do two cheap ones."""
    net = nn.Linear(3, 2).requires_grad_(False)
    net.weight.copy_(torch.tensor([[3.0, 2.0, 2.0], [0.0, 0.0, 0.0]]))
    net.bias.copy_(torch.tensor([0.0, 4.5]))
    asked: dict[str, Any] = {"space": sz.Space(cost=[5.0, 1.0, 1.0]), "hardware": sz.Hardware(precision=precision)}
    attack, x, y = sz.get(name, **options), torch.ones(1, 3), torch.tensor([0])
    found, free = (attack.run(net, x, y, budget=budget, **asked) for budget in (1, None))
    assert found.success.all()
    assert (found.l0.item(), found.cost.item(), free.l0.item(), free.cost.item()) == (1, 5, 2, 2)
    assert found.forwards < free.forwards


def small(name: str) -> tuple[sz.Attack, dict[str, Any]]:
    """A short search, and the budget that some attacks need."""
    options: dict[str, Any] = {"queries": 60} if name == "sigma-swap" else {"steps": 60 if "swap" in name else 8}
    options |= {"directions": 10, "blends": 10} if name.startswith("bb") else {}
    attack = sz.get(name, **options)
    return attack, {"budget": 3} if attack.kind == "budget" else {}


@pytest.mark.parametrize(
    ("costs", "dtype"),
    [
        ([0.7, 1.0, 3.3, 0.1, 2.0, 1.9, 0.5, 0.3, 1.1, 2.2, 0.9, 4.0], torch.float32),
        ([1, 2, 3] * 4, torch.float64),
        ([1] * 12, torch.float64),
    ],
    ids=["any", "whole", "alike"],
)
@pytest.mark.parametrize("name", IN_SPACES)
def test_the_unit_of_costs_changes_no_result(name, costs, dtype):
    net, x, y = linear_problem((12,), 4)
    net, x, (attack, more) = net.to(dtype), x.to(dtype), small(name)
    plain, *others = (
        attack.run(net, x, y, space=sz.Space(cost=[unit * cost for cost in costs]), **more) for unit in (1, *UNITS)
    )
    assert plain.found.any()
    for unit, other in zip(UNITS, others, strict=True):
        for field in ("x_adv", "l0", "forwards", "backwards", "step_found"):
            assert torch.equal(getattr(plain, field), getattr(other, field)), (unit, field)
        torch.testing.assert_close(other.cost, unit * plain.cost)


@pytest.mark.parametrize("unit", [1.0, 0.1])
@pytest.mark.parametrize("name", ["genetic", "query-swap", "swap-search"])
def test_of_equal_costs_fewer_changes_win(name, unit):
    """The third change alone costs what the first two do, and either fools the network."""
    net = nn.Linear(7, 2).requires_grad_(False)
    net.weight.copy_(torch.tensor([[2.0, 2.0, 3.0, 0.1, 0.1, 0.1, 0.1], [0.0] * 7]))
    net.bias.copy_(torch.tensor([0.0, 4.5]))
    space = sz.Space(cost=[unit * cost for cost in (1, 2, 3, 4, 5, 6, 7)])
    found = small(name)[0].run(net, torch.ones(1, 7), torch.tensor([0]), space=space)
    assert found.l0.item() == 1
    assert found.cost.item() == pytest.approx(3 * unit)
