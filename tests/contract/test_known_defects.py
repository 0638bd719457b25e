"""Promises that were broken once, by every attack or function that makes them."""

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import sigmazero as sz
from tests.helpers.attacks import EVERY, how, small
from tests.helpers.networks import linear_problem

TAKES = {"start": ("bb", "bb-dataset", "label-swap", "swap-search"), "pool": ("bb-dataset", "label-swap")}


@pytest.mark.parametrize(
    ("name", "option"),
    [(name, option) for option in TAKES for name in EVERY if (name, option) != ("bb", "pool")],  # its second choice
)
def test_where_to_start_is_heeded_or_refused(name, option):
    model, x, y = linear_problem((8,), 3, seed=3)
    attack, points = small(name), [torch.zeros(0, 8, dtype=torch.float64)]

    def asked(z):
        points.append(z.detach().clone())
        return model(z)

    options: dict[str, Any] = how(attack) | {option: 1 - x}
    if name in TAKES[option]:
        attack.run(asked, x, y, **options)
        assert (torch.cat(points)[:, None] == 1 - x).all(2).any()
    else:
        with pytest.raises(ValueError, match=option):
            attack.run(asked, x, y, **options)
        assert len(points) == 1


@pytest.mark.parametrize("name", [name for name in EVERY if name != "bb-dataset"])
def test_a_model_that_answers_at_random_is_noticed(name):
    torch.manual_seed(1)
    layer, attack = nn.Linear(12, 4), small(name)
    x = torch.rand(16, 12)
    y = layer(x).argmax(1)

    def model(z: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = layer(nn.functional.dropout(z, 0.3))
        return 4 * logits

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = attack.run(model, x, y, **how(attack))
    assert any("SZ003" in str(each.message) for each in said)
    assert "SZ003" in {finding.code for finding in result.findings}


def test_counts_are_exact_whatever_the_default_format():
    """Half of float32 does not hold 3001."""

    def model(x):
        return torch.stack([x.sum(1) - 0.1, 0 * x.sum(1)], 1)

    x = torch.full((1, 3001), 0.5)
    torch.set_default_dtype(torch.float16)
    try:
        result = sz.get("ead", steps=1, binary_search_steps=1, initial_const=1e3).run(model, x, torch.tensor([0]))
    finally:
        torch.set_default_dtype(torch.float32)
    assert result.l0.tolist() == result.l0_pixel.tolist() == [3001]
