"""Robustness as a test: `assert_robust` in a file of pytest, or of any other runner."""

from typing import Any

from sigmazero.auto import Verdict, gate

__all__ = ["assert_robust"]


def assert_robust(model: object, data: Any, eps: int, at_least: float, **how: Any) -> Verdict:
    """Fail unless this share of the rows stays right with at most eps changes; `how` is whatever else `sz.gate` takes.

    An error that `allow` does not name fails too: the figure would mean little.

    >>> import torch
    >>> model = torch.nn.Linear(4, 2).requires_grad_(False)
    >>> _ = model.weight.copy_(torch.tensor([[9.0] * 4, [0.0] * 4])), model.bias.zero_()
    >>> data = torch.full((3, 4), 0.9), torch.tensor([0, 0, 0])
    >>> assert_robust(model, data, eps=1, at_least=0.6, version="quick").robust_accuracy
    1.0
    """
    __tracebackhide__ = True  # pytest shows the line of the test, not this one
    verdict = gate(model, data, eps, at_least, **how)
    if not verdict.passed:
        findings = [f"{each.code}: {each.detail} Fix: {each.fix}" for each in verdict.blocking]
        raise AssertionError("\n".join([str(verdict), *findings]))
    return verdict
