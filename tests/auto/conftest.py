"""Small cascades and the networks they attack."""

from typing import Any

import torch
from torch import Tensor, nn

import sigmazero as sz
from tests.helpers.networks import TinyNet

MEMBERS = [sz.get("sigma-zero", steps=40), sz.get("fmn", steps=40), sz.get("sparse-rs", steps=150)]
MINIMUM = [*MEMBERS[:2], sz.get("sparse-rs-min", steps=150)]


def problem(n: int = 24, kind: str = "conv", dtype: torch.dtype = torch.float64) -> tuple[TinyNet, Tensor, Tensor]:
    """Random inputs with the network's own classes, two of them made wrong."""
    net = TinyNet(kind, dtype)
    x = torch.rand(n, *net.x.shape[1:], generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(dtype)
    y = net(x).argmax(1)
    y[1], y[3] = (y[1] + 1) % 3, (y[3] + 1) % 3
    return net, x, y


def custom(model: Any, eps: int | None, members: Any = None, **more: Any) -> sz.SparseAutoAttack:
    chosen = members or (MINIMUM if eps is None else MEMBERS)
    return sz.SparseAutoAttack(model, "L0", eps, verbose=False, version="custom", attacks_to_run=chosen, **more)


class Counted(nn.Module):
    """Counts the rows that go through a network."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.rows, self.stop = net, 0, float("inf")

    def forward(self, x: Tensor) -> Tensor:
        self.rows += len(x)
        if self.rows > self.stop:
            raise KeyboardInterrupt
        out: Tensor = self.net(x)
        return out
