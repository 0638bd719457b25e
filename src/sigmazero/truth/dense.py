"""A small network as matrices in float64, and linear bounds of what it answers near an input.

The bounds are those of CROWN and of intervals, whichever is tighter, over points of which few features change: a linear
form is as low as its few best features make it (the top-t lemma, https://arxiv.org/abs/2511.10576).
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DOUBLE = torch.float64
OPEN, FREE, STAYS = 0, 1, 2


class Affine(NamedTuple):
    """One layer: a matrix and a shift."""

    weight: Tensor
    bias: Tensor


class Relaxed(NamedTuple):
    """A layer of ReLUs between lines: `low`·z ≤ max(z, 0) ≤ `high`·z + `shift`."""

    low: Tensor
    high: Tensor
    shift: Tensor


@dataclass
class Nodes:
    """Sets of points near an input x in the unit box, one per row.

    `state` (nodes, features) says of a feature that it is FREE between `lower` and `upper`, that it STAYS as it is in
    x, or that it is OPEN; of those that are open at most `left` (nodes,) change, to any value of the box.
    """

    state: Tensor
    lower: Tensor
    upper: Tensor
    left: Tensor


def matrices(model: nn.Sequential, shape: tuple[int, ...]) -> list[Affine]:
    """Linear layers and convolutions, with a ReLU after each but the last, as matrices."""
    found: list[Affine] = []
    due = False  # whether a ReLU is to come
    for layer in model:
        if isinstance(layer, nn.Linear | nn.Conv2d) and not due:
            found.append(_matrix(layer, shape))
            shape, due = tuple(layer(torch.zeros(1, *shape)).shape[1:]), True
        elif isinstance(layer, nn.ReLU) and due:
            due = False
        elif isinstance(layer, nn.Flatten):
            shape = (torch.Size(shape).numel(),)
        else:
            raise ValueError(
                f"{layer} cannot be solved: give Linear or Conv2d layers with a ReLU after each but the last"
            )
    return found


def _matrix(layer: nn.Linear | nn.Conv2d, shape: tuple[int, ...]) -> Affine:
    """What a layer does to each unit vector; products with 0 and 1 are exact."""
    size, weight = torch.Size(shape).numel(), layer.weight.detach().to(DOUBLE)
    units = torch.eye(size, dtype=DOUBLE).view(-1, *shape)
    if isinstance(layer, nn.Linear):
        answer = F.linear(units, weight)
    else:
        assert not isinstance(layer.padding, str)
        answer = F.conv2d(units, weight, None, layer.stride, layer.padding, layer.dilation, layer.groups)
    bias = torch.zeros(len(weight)) if layer.bias is None else layer.bias.detach()
    bias = bias.to(DOUBLE).view(-1, *[1] * (answer.ndim - 2)).expand(answer.shape[1:])
    return Affine(answer.flatten(1).T.contiguous(), bias.flatten().clone())


def float32_error(layers: list[Affine], x: Tensor, changes: int) -> Tensor:
    """By how much each logit can be off when the network runs in float32, at x with at most so many changes.

    A sum of n products, in whatever order, is off by at most γ(n) = n·u / (1 − n·u) of the sum of their sizes, with
    u = 2^−24; what was off before passes through the layer's weights. A ReLU makes nothing worse.
    """
    (weight, bias), *others = layers
    size = weight.abs() @ x + _best(weight.abs() * (1 - x), changes)
    down, up = (_best(torch.maximum(each * x, each * (x - 1)), changes) for each in (weight, -weight))
    low, high = weight @ x + bias - down, weight @ x + bias + up
    error = _gamma(weight) * (size + bias.abs())
    for weight, bias in others:
        low, high = low.clamp_min(0), high.clamp_min(0)
        error = weight.abs() @ error + _gamma(weight) * (weight.abs() @ (high + error) + bias.abs())
        plus, minus = weight.clamp_min(0), weight.clamp_max(0)
        low, high = plus @ low + minus @ high + bias, plus @ high + minus @ low + bias
    return error


def _best(gains: Tensor, count: int) -> Tensor:
    return gains.topk(min(count, gains.shape[1]), dim=1).values.sum(1)


def _gamma(weight: Tensor) -> Tensor:
    """The relative error of each of a layer's sums, the shift and the rounding of the result among its terms."""
    part = ((weight != 0).sum(1) + 2) * 2.0**-24
    return part / (1 - part)


class Local:
    """A network near one input: how far the true class is ahead of each other one, from below."""

    def __init__(self, layers: list[Affine], x: Tensor, y: int) -> None:
        self.x, self.y = x.flatten().to(DOUBLE), y
        last, self.network = layers[-1], layers
        self.others = [k for k in range(len(last.bias)) if k != y]
        ahead = Affine(last.weight[y] - last.weight[self.others], last.bias[y] - last.bias[self.others])
        self.layers = [*layers[:-1], ahead]

    def slack(self, changes: int) -> Tensor:
        """What each lead must be, at the least, to be one in float32 as well, with so many changes."""
        error = float32_error(self.network, self.x, changes)
        return error[self.y] + error[self.others]

    def margins(self, points: Tensor) -> Tensor:
        """The lead of the true class over each other one, at points (n, features)."""
        for weight, bias in self.layers[:-1]:
            points = (points @ weight.T + bias).clamp_min(0)
        return points @ self.layers[-1].weight.T + self.layers[-1].bias

    def bound(self, nodes: Nodes) -> tuple[Tensor, Tensor]:
        """Least leads over all points of each node (nodes, classes − 1), and the slopes behind them over the input."""
        relaxed: list[Relaxed] = []
        before: tuple[Tensor, Tensor] | None = None
        for depth in range(len(self.layers) - 1):
            low, _ = self._backward(depth, relaxed, nodes, 1)
            high = -self._backward(depth, relaxed, nodes, -1)[0]
            if before is not None:
                weight, bias = self.layers[depth]
                plus, minus = weight.clamp_min(0).T, weight.clamp_max(0).T
                low = torch.maximum(low, before[0] @ plus + before[1] @ minus + bias)
                high = torch.minimum(high, before[1] @ plus + before[0] @ minus + bias)
            relaxed.append(_relaxed(low, high))
            before = low.clamp_min(0), high.clamp_min(0)
        return self._backward(len(self.layers) - 1, relaxed, nodes, 1)

    def _backward(self, depth: int, relaxed: list[Relaxed], nodes: Nodes, sign: int) -> tuple[Tensor, Tensor]:
        """The least value of `sign` times each number that a layer computes, and its slopes over the input."""
        slope, constant = sign * self.layers[depth].weight[None], sign * self.layers[depth].bias[None]
        for layer, line in zip(reversed(self.layers[:depth]), reversed(relaxed), strict=True):
            plus, minus = slope.clamp_min(0), slope.clamp_max(0)
            constant = constant + (minus * line.shift[:, None]).sum(2)
            slope = plus * line.low[:, None] + minus * line.high[:, None]
            constant = constant + slope @ layer.bias
            slope = slope @ layer.weight
        return self._least(slope, nodes) + constant, slope.expand(len(nodes.left), -1, -1)

    def _least(self, slope: Tensor, nodes: Nodes) -> Tensor:
        """The least value of linear forms over the points of each node."""
        free = nodes.state == FREE
        value = (slope * torch.where(free, 0.0, self.x)[:, None]).sum(2)
        low, high = torch.where(free, nodes.lower, 0.0), torch.where(free, nodes.upper, 0.0)
        value = value + (slope.clamp_min(0) * low[:, None]).sum(2) + (slope.clamp_max(0) * high[:, None]).sum(2)
        most = min(int(nodes.left.max()), len(self.x))
        if most:
            best = (self.gains(slope) * (nodes.state == OPEN)[:, None]).topk(most, dim=2).values
            counted = torch.arange(most) < nodes.left[:, None]
            value = value - (best * counted[:, None]).sum(2)
        return value

    def gains(self, slope: Tensor) -> Tensor:
        """By how much each feature alone can lower linear forms."""
        return torch.maximum(slope * self.x, slope * (self.x - 1))


def _relaxed(low: Tensor, high: Tensor) -> Relaxed:
    """Lines around ReLUs between these values; the one below is that with the smaller area."""
    on, off = low >= 0, high <= 0
    width = torch.where(on | off, 1.0, high - low)
    above = torch.where(on, 1.0, torch.where(off, 0.0, high / width))
    shift = torch.where(on | off, 0.0, -above * low)
    below = torch.where(on, 1.0, torch.where(off, 0.0, (high > -low).to(DOUBLE)))
    return Relaxed(below, above, shift)
