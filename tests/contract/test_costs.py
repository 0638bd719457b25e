"""Changes that cost differently: what a budget means then, and that the unit of costs means nothing."""

import pytest
import torch
from torch import nn

import sigmazero as sz


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
    asked = {"space": sz.Space(cost=[5.0, 1.0, 1.0]), "precision": precision}
    attack, x, y = sz.get(name, **options), torch.ones(1, 3), torch.tensor([0])
    found, free = (attack.run(net, x, y, budget=budget, **asked) for budget in (1, None))
    assert found.success.all()
    assert (found.l0.item(), found.cost.item(), free.l0.item(), free.cost.item()) == (1, 5, 2, 2)
    assert found.forwards < free.forwards
