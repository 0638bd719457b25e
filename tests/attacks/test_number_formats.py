"""Models that answer in another number format than they are asked in: what an attack is told."""

import pytest
import torch

import sigmazero as sz
from sigmazero.core.inputs import make_problem
from sigmazero.core.oracle import Oracle


def test_what_an_answer_is_worth_is_told_from_the_models_own_numbers():
    """Logits that differ in float64 and are equal in float32, where the first of equal ones would win; and a slope."""
    tiny = torch.tensor([1.0, 1.0 + 1e-12], dtype=torch.float64)

    def model(x):
        return tiny + 0 * x[:, :1].double()

    x = torch.full((1, 2), 0.5)
    oracle = Oracle(model, make_problem(x, torch.tensor([0])))
    answer = oracle.value_and_grad(x + 0.25, oracle.goal.margin)
    assert answer.logits.argmax(1).item() == 0
    assert answer.fooled.item()
    assert oracle.incumbents.best_l0.item() == 2
    assert answer.value.item() == pytest.approx(-1e-12, rel=1e-3)


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
