"""Saliency and genetic where the answer is known; what sigma-swap does where features are binary."""

import pytest
import torch
from torch import Tensor, nn

import sigmazero as sz

ADD_ONLY = sz.Space(kind="binary", direction="up")


def linear(weights: list[float], bias: float) -> nn.Linear:
    """Class 1 as long as the weighted sum is above 0."""
    model = nn.Linear(len(weights), 2).double().requires_grad_(False)
    model.weight.copy_(torch.tensor([[0.0] * len(weights), weights]))
    model.bias.copy_(torch.tensor([0.0, bias]))
    return model


def detector() -> tuple[nn.Linear, Tensor, Tensor, Tensor]:
    """A linear detector, inputs it detects, their labels, and the fewest features that must be added to each."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(40, generator=generator, dtype=torch.float64)
    x = (torch.rand(12, 40, generator=generator) < 0.2).double()
    model = linear(weight.tolist(), 10.0)
    gains = torch.where(x == 0, -weight, 0).clamp(min=0).sort(1, descending=True).values.cumsum(1)
    optimum = (gains <= model(x)[:, 1:]).sum(1) + 1
    assert (optimum < 30).all()
    assert (optimum > 2).all()
    return model, x, torch.ones(12).long(), optimum


def test_saliency_asks_twice_for_each_change_and_stops_with_the_first_example():
    model, x, y, optimum = detector()
    result = sz.get("saliency").run(model, x, y, space=ADD_ONLY)
    assert torch.equal(result.backwards, optimum + 1)  # the clean point's too
    assert torch.equal(result.forwards, 2 * optimum + 4)  # values of each change, its gradient, and the checks


def test_saliency_weighs_what_a_change_promises_by_what_it_costs():
    model, x, y = linear([-3.0, -2.0, -2.0], 3.5), torch.zeros(1, 3).double(), torch.tensor([1])
    for cost, changed, paid in (([1, 1, 1], [1, 1, 0], 2), ([5, 1, 1], [0, 1, 1], 2)):
        result = sz.get("saliency").run(model, x, y, space=sz.Space(kind="binary", cost=cost))
        assert result.x_adv.tolist() == [changed]
        assert float(result.cost[0]) == paid


@pytest.mark.parametrize("name", ["saliency", "genetic"])
def test_the_best_of_several_categories_is_one_change(name):
    model, y = linear([5.0, 3.0, -4.0, 4.0, -1.0], -0.5), torch.tensor([1])
    x = torch.tensor([[1.0, 0.0, 0.0, 0.0, 1.0]]).double()
    space = sz.Space(kind="binary", one_hot={"job": [0, 1, 2, 3]})
    result = sz.get(name).run(model, x, y, space=space)
    assert result.x_adv.tolist() == [[0, 0, 1, 0, 1]]
    assert int(result.l0[0]) == 1


def test_saliency_gives_up_where_nothing_promises_anything():
    model, x, y = linear([1.0, 2.0, -0.1], 3.0), torch.zeros(1, 3).double(), torch.tensor([1])
    result = sz.get("saliency").run(model, x, y, space=ADD_ONLY)
    assert not result.success.any()
    assert int(result.forwards[0]) == 5  # the check, the clean point, and the one change that serves with its values


def test_genetic_asks_as_often_as_it_says():
    model, x, y, _ = detector()
    genetic, most = sz.get("genetic", steps=7, population=11), torch.full_like(y, 7 * 11 + 1)
    result = genetic.run(model, x, y)
    assert torch.equal(result.forwards, most + 2 * result.success)  # a success is asked about twice more
    assert (result.backwards == 0).all()
    result = genetic.run(model, x, y, space=ADD_ONLY)  # where no point is asked about twice
    assert (result.forwards <= most + 2 * result.success).all()
