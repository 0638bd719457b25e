"""Robustness as one test among others. Run it with: pytest test_robustness.py."""

import torch

from sigmazero.data import load
from sigmazero.testing import assert_robust


def train() -> torch.nn.Module:
    """A small classifier of digits; in your project, your model and its weights."""
    torch.manual_seed(0)
    digits = load("digits-8x8", rows="0:500")
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(100):
        loss = torch.nn.functional.cross_entropy(model(digits.images), digits.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def test_half_of_the_digits_withstand_one_change() -> None:
    assert_robust(train(), load("digits-8x8", rows="500:520"), eps=1, at_least=0.5, version="quick")
