"""Promises that were broken once, by every attack or function that makes them."""

import warnings
from typing import Any

import numpy as np
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


class Merging(nn.Module):
    """Adds a second layer in eval mode, as merged adapters and re-parametrised blocks do."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.base, self.delta, self.merged = nn.Linear(12, 4), nn.Parameter(3 * torch.randn(4, 12)), False

    def train(self, mode: bool = True) -> "Merging":
        """Set the mode, and merge or not."""
        self.merged = not mode
        return super().train(mode)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The logits."""
        logits: torch.Tensor = self.base(x)
        return logits + x @ self.delta.T if self.merged else logits


@pytest.mark.parametrize("name", ["sigma-zero", "query-swap"])
def test_a_model_is_attacked_as_it_is_in_eval_mode(name):
    model, x = Merging().eval(), torch.rand(16, 12, generator=torch.Generator().manual_seed(3))
    y = model(x).argmax(1)
    given = Merging().train()
    result = small(name).run(given, x, y)
    assert given.training
    assert not given.merged
    assert (model(result.x_adv).argmax(1) != y)[result.success].all()


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


def test_check_takes_a_function_of_numpy():
    def model(x: np.ndarray) -> np.ndarray:
        return np.stack([0 * x.sum(1), x.sum(1) - 1], 1)

    x = torch.full((2, 4), 0.5)
    assert sz.check(model, x, torch.tensor([1, 1]), 0 * x).l0.tolist() == [4, 4]


def test_check_takes_no_rows():
    x = torch.zeros(0, 4)
    assert len(sz.check(nn.Linear(4, 2), x, torch.zeros(0, dtype=torch.int64), x)) == 0


def test_a_refused_model_leaves_autocast_as_it_was():
    class Cast(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return super().forward(input).float()

    model, x = Cast(6, 2).eval(), torch.full((1, 6), 0.5)
    try:
        with pytest.raises(Exception, match="bfloat16"):
            sz.certify(model, x, model(x).argmax(1), up_to=1, attack=None)
        assert not torch.is_autocast_enabled("cpu")
    finally:
        torch.set_autocast_enabled("cpu", False)


@pytest.mark.parametrize("name", ["sigma-zero", "query-swap"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_frozen_script_can_be_attacked(name):
    x = torch.rand(3, 12)
    model = torch.jit.freeze(torch.jit.trace(nn.Linear(12, 4).eval(), x))
    y = model(x).argmax(1)
    result = small(name).run(model, x, y)
    assert (model(result.x_adv).argmax(1) != y)[result.success].all()
