"""Every query of adv-lib's FMN, reproduced."""

import pytest
import torch

import sigmazero as sz
from tests.helpers.traces import Recording, check_every_query


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("steps", [30, 100])
def test_every_query_is_adv_libs(steps, kind):
    check_every_query(sz.get("fmn", steps=steps), f"fmn_{steps}", kind)


def test_ties_with_the_threshold_survive():
    """Equal gradients give equal changes: with one change allowed all of them stay; the traces contain no such case."""

    def model(x):
        total = x.sum(1, keepdim=True)
        return torch.cat([total, 1.9 - 0 * total], 1)

    x, asked = torch.full((1, 4), 0.5, dtype=torch.float64), Recording(model)
    sz.get("fmn", steps=2).run(asked, x, torch.tensor([0]))
    assert (asked.points[2] != x).sum() == 4


def test_no_change_allowed_means_one():
    """A point with one change shrinks ε to 0, where adv-lib asks for the 0-th largest value and crashes."""
    model = torch.nn.Linear(4, 2, dtype=torch.float64).requires_grad_(False)
    model.weight.copy_(torch.tensor([[8.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]))
    model.bias.copy_(torch.tensor([0.0, 4.5]))
    result = sz.get("fmn", steps=30).run(model, torch.full((1, 4), 0.5, dtype=torch.float64), torch.tensor([0]))
    assert result.l0.tolist() == [1]
    assert result.forwards.tolist() == [32]
