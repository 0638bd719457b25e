"""Small cascades and the networks they attack."""

from typing import Any

import torch
from torch import Tensor, nn

import sigmazero as sz
from tests.helpers.networks import TinyNet

MEMBERS = [sz.get("sigma-zero", steps=40), sz.get("fmn", steps=40), sz.get("sparse-rs", steps=150)]
MINIMUM = [*MEMBERS[:2], sz.get("sparse-rs-min", steps=150)]


def problem(n: int = 24, kind: str = "conv", dtype: torch.dtype = torch.float64) -> tuple[TinyNet, Tensor, Tensor]:
    """Return random inputs with the network's own classes, two of them made wrong."""
    net = TinyNet(kind, dtype)
    x = torch.rand(n, *net.x.shape[1:], generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(dtype)
    y = net(x).argmax(1)
    y[1], y[3] = (y[1] + 1) % 3, (y[3] + 1) % 3
    return net, x, y


def custom(model: Any, eps: int | None, members: Any = None, **more: Any) -> sz.SparseAutoAttack:
    """Return a cascade of three short attacks, or of these."""
    chosen = members or (MINIMUM if eps is None else MEMBERS)
    return sz.SparseAutoAttack(model, "L0", eps, verbose=False, version="custom", attacks_to_run=chosen, **more)


class Counted(nn.Module):
    """Count the rows that go through a network, and interrupt after `stop` of them."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.rows, self.stop = net, 0, float("inf")

    def forward(self, x: Tensor) -> Tensor:
        self.rows += len(x)
        if self.rows > self.stop:
            raise KeyboardInterrupt
        out: Tensor = self.net(x)
        return out


class Rounded(nn.Module):
    """Only rounded inputs count: the gradient is zero everywhere, but the logits tell how near one is."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 3, generator=torch.Generator().manual_seed(1)))

    def forward(self, x: Tensor) -> Tensor:
        return (x.flatten(1) - 0.5).sign().detach() @ self.weight + 0 * x.flatten(1)[:, :3]


class Votes(nn.Module):
    """Count bright inputs: no gradient comes through."""

    def forward(self, x: Tensor) -> Tensor:
        bright = (x.flatten(1) > 0.5).sum(1)
        return torch.stack([bright, x[0].numel() - bright], 1).to(x.dtype)


class Noisy(nn.Module):
    """A linear model with noise on its logits."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 3, generator=torch.Generator().manual_seed(2)))
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        logits = x.flatten(1) @ self.weight
        return logits + self.size * torch.randn_like(logits)
