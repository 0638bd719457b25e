"""Small networks with known behaviour, and the known optimum of linear ones."""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

TRACES = Path(__file__).parents[1] / "golden" / "traces"


class TinyNet(nn.Module):
    """The two networks of the golden traces; `conv` takes (1, 8, 8), `rgb` takes (3, 6, 6)."""

    def __init__(self, kind: str, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.kind = kind
        with np.load(TRACES / "nets.npz") as arrays:
            own = {k.split("__")[1]: torch.from_numpy(arrays[k]) for k in arrays.files if k.startswith(kind)}
        self.weights = nn.ParameterDict({k: v.to(dtype) for k, v in own.items() if k[0] in "wb"})
        self.x, self.y = own["x"].to(dtype), own["y"].long()

    def forward(self, x: Tensor) -> Tensor:
        w = self.weights
        if self.kind == "conv":
            h = F.relu(F.conv2d(x, w["w1"], w["b1"], padding=1))
            h = F.relu(F.conv2d(h, w["w2"], w["b2"], padding=1, stride=2))
            return F.linear(h.flatten(1), w["w3"], w["b3"])
        return F.linear(torch.tanh(F.conv2d(x, w["w1"], w["b1"], padding=1)).flatten(1), w["w2"], w["b2"])


class Linear(nn.Module):
    """A linear classifier of inputs of any shape."""

    def __init__(self, shape: tuple[int, ...], classes: int = 4, seed: int = 0) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(classes, int(np.prod(shape)), generator=g, dtype=torch.float64))
        self.bias = nn.Parameter(torch.randn(classes, generator=g, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        # Multiply and add instead of a matrix product: its kernels round differently with the batch size.
        return (x.flatten(1)[:, None] * self.weight).sum(2) + self.bias


def linear_problem(shape: tuple[int, ...], n: int, seed: int = 0) -> tuple[Linear, Tensor, Tensor]:
    """A linear model and inputs it classifies correctly."""
    model = Linear(shape, seed=seed)
    x = torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    return model, x, model(x).argmax(1)


def linear_optimum(model: Linear, x: Tensor, y: Tensor, lower: float = 0.0, upper: float = 1.0) -> Tensor:
    """Fewest features that make a linear model wrong: per other class, add up the largest gains until they exceed
    the gap. Infinite where no change inside the box suffices."""
    flat, w, b = x.flatten(1), model.weight.detach(), model.bias.detach()
    best = torch.full((len(x),), torch.inf, dtype=torch.float64)
    for other in range(len(w)):
        a = w[y] - w[other]
        gap = (flat * a).sum(1) + b[y] - b[other]
        gains = torch.maximum(a * (flat - lower), -a * (upper - flat)).sort(1, descending=True).values
        reached = gains.cumsum(1) > gap[:, None]
        needed = torch.where(reached.any(1), reached.int().argmax(1) + 1.0, torch.inf)
        best = torch.where(y == other, best, torch.minimum(best, needed))
    return best


class Counting:
    """A model that counts, per sample, the rows that go forward and backward through it.

    A sample is recognised by a tag in its last feature, which the attack must not change (mask it).
    """

    def __init__(self, model: nn.Module, tags: int) -> None:
        self.model = model
        self.forwards, self.backwards = (torch.zeros(tags, dtype=torch.int64) for _ in range(2))

    def __call__(self, x: Tensor) -> Tensor:
        tags = (x.detach().flatten(1)[:, -1] * 1000).round().long()
        self.forwards += torch.bincount(tags, minlength=len(self.forwards))
        logits: Tensor = self.model(x)
        if logits.requires_grad:

            def count(_: Tensor) -> None:
                self.backwards.add_(torch.bincount(tags, minlength=len(self.backwards)))

            logits.register_hook(count)
        return logits
