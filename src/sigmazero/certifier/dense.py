"""A small network as matrices in float64, and linear bounds of what it answers near an input.

The bounds are those of CROWN, over points of which few features change: a linear
form is as low as its few best features make it (the top-t lemma, https://arxiv.org/abs/2511.10576).
"""

from dataclasses import dataclass, fields, replace
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
    x, or that it is OPEN; of those that are open at most `left` (nodes,) change, to any value of the box. What is known
    of a node holds for every part of it: each neuron before its ReLU is between `low` and `high` (nodes, neurons), and
    the true class is ahead by `lead` (nodes, classes − 1) or more.
    """

    state: Tensor
    lower: Tensor
    upper: Tensor
    left: Tensor
    low: Tensor
    high: Tensor
    lead: Tensor

    def take(self, rows: slice | Tensor) -> "Nodes":
        """Some of them."""
        return Nodes(*(getattr(self, each.name)[rows] for each in fields(self)))

    def join(self, other: "Nodes") -> "Nodes":
        """These and others."""
        return Nodes(*(torch.cat([getattr(self, each.name), getattr(other, each.name)]) for each in fields(self)))


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


class Neighbourhood:
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

    def root(self, changes: int) -> Nodes:
        """All points with at most so many changes; nothing is known of them."""
        lower = torch.zeros(1, len(self.x), dtype=DOUBLE)
        neurons = torch.full((1, sum(len(layer.bias) for layer in self.layers[:-1])), torch.inf, dtype=DOUBLE)
        lead = torch.full((1, len(self.others)), -torch.inf, dtype=DOUBLE)
        state = torch.full((1, len(self.x)), OPEN, dtype=torch.int8)
        return Nodes(state, lower, lower + 1, torch.tensor([changes]), -neurons, neurons, lead)

    def bound(self, nodes: Nodes, slack: Tensor) -> tuple[Nodes, Tensor]:
        """The same nodes with all that can be told of them, and slopes over the input (nodes, classes − 1, features).

        Neurons that are known to be on or off, and leads above `slack`, are left as they are: they cost nothing.
        """
        relaxed: list[Relaxed] = []
        sizes = [len(layer.bias) for layer in self.layers[:-1]]
        lows, highs = (list(torch.split(known, sizes, 1)) if sizes else [] for known in (nodes.low, nodes.high))
        for depth in range(len(sizes)):
            row, neuron = ((lows[depth] < 0) & (highs[depth] > 0)).nonzero(as_tuple=True)
            least, _ = self._backward(depth, relaxed, nodes, row, neuron, 1)
            most, _ = self._backward(depth, relaxed, nodes, row, neuron, -1)
            low, high = lows[depth].clone(), highs[depth].clone()
            low[row, neuron] = torch.maximum(low[row, neuron], least)
            high[row, neuron] = torch.minimum(high[row, neuron], -most)
            lows[depth], highs[depth] = low, high
            relaxed.append(_relaxed(low, high))
        row, other = (nodes.lead <= slack).nonzero(as_tuple=True)
        least, slope = self._backward(len(sizes), relaxed, nodes, row, other, 1)
        lead, slopes = nodes.lead.clone(), torch.zeros(*nodes.lead.shape, len(self.x), dtype=DOUBLE)
        lead[row, other] = torch.maximum(lead[row, other], least)
        slopes[row, other] = slope
        known = {"low": torch.cat(lows, 1), "high": torch.cat(highs, 1)} if sizes else {}
        return replace(nodes, lead=lead, **known), slopes

    def _backward(
        self, depth: int, relaxed: list[Relaxed], nodes: Nodes, row: Tensor, number: Tensor, sign: int
    ) -> tuple[Tensor, Tensor]:
        """The least values of `sign` times some numbers that a layer computes in some nodes, and their slopes."""
        slope, constant = sign * self.layers[depth].weight[number], sign * self.layers[depth].bias[number]
        for layer, line in zip(reversed(self.layers[:depth]), reversed(relaxed), strict=True):
            plus, minus = slope.clamp_min(0), slope.clamp_max(0)
            constant = constant + (minus * line.shift[row]).sum(1)
            slope = plus * line.low[row] + minus * line.high[row]
            constant = constant + slope @ layer.bias
            slope = slope @ layer.weight
        return self._least(slope, nodes, row) + constant, slope

    def _least(self, slope: Tensor, nodes: Nodes, row: Tensor) -> Tensor:
        """The least value of each linear form over the points of its node."""
        free = nodes.state == FREE
        low, high = torch.where(free, nodes.lower, self.x), torch.where(free, nodes.upper, self.x)
        value = (slope.clamp_min(0) * low[row]).sum(1) + (slope.clamp_max(0) * high[row]).sum(1)
        left = nodes.left[row]
        gains = self.gains(slope).masked_fill_((nodes.state != OPEN)[row], 0.0)
        # One after the other: sorting would cost more than these few.
        for k in range(min(int(left.max()), len(self.x)) if len(left) else 0):
            best, place = gains.max(1)
            value = value - best.masked_fill(left <= k, 0.0)
            gains.scatter_(1, place[:, None], 0.0)
        return value

    def gains(self, slope: Tensor) -> Tensor:
        """By how much each feature alone can lower linear forms."""
        return slope * self.x - slope.clamp_max(0)


def _relaxed(low: Tensor, high: Tensor) -> Relaxed:
    """Lines around ReLUs between these values; the one below is that with the smaller area."""
    on, off = low >= 0, high <= 0
    width = torch.where(on | off, 1.0, high - low)
    above = torch.where(on, 1.0, torch.where(off, 0.0, high / width))
    shift = torch.where(on | off, 0.0, -above * low)
    below = torch.where(on, 1.0, torch.where(off, 0.0, (high > -low).to(DOUBLE)))
    return Relaxed(below, above, shift)
