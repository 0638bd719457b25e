"""Slopes from another framework: torch asks for a product with the Jacobian, and the other side computes it."""

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

Pull = Callable[[NDArray[Any]], NDArray[Any]]  # from a slope of the answer to a slope of the input
WithPull = Callable[[NDArray[Any]], tuple[NDArray[Any], Pull]]


class Bridge(torch.autograd.Function):
    """An answer with the way back open: `ask` returns the answer, and what leads slopes back to the input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ask: WithPull) -> Tensor:
        """Ask the other side, and keep its way back."""
        answer, ctx.pull = ask(x.detach().cpu().numpy())
        return torch.from_numpy(answer).to(x.device)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        """Go that way."""
        (slope,) = slopes
        grad = torch.from_numpy(ctx.pull(slope.detach().cpu().contiguous().numpy()))
        return grad.to(slope.device), None
