"""Layers of a network: their values, intervals, coefficients, and rounding errors.

Values have the shape (rows, height, width, channels); a vector is an image of one position. A *deviation* is how far a
value is from its value for the unchanged input. Bounds are about deviations: what no change can reach is 0, and biases
play no part.

Bounds are computed in float64 and moved outward by more than rounding can change (docs/evidence/soundness.md). A sum
of n products, in any order, is off by at most gamma(n) times the sum of their magnitudes. With a larger unit the same
formulas bound the error of the model itself, which computes in float32.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

Interval = tuple[Tensor, Tensor]
Pair = tuple[int, int]
UNIT = 2.0**-53  # the largest relative error of one operation in float64


def gamma(terms: int, unit: float = UNIT, more: int = 16) -> float:
    """Return the largest relative error of a sum of `terms` products, and of `more` operations around it.

    >>> gamma(100) < 2e-14
    True
    """
    n = (terms + more) * unit
    return n / (1 - n)


def widened(lo: Tensor, hi: Tensor, relative: float) -> Interval:
    """Widen intervals by a share of their width; intervals of width 0 stay."""
    slack = (hi - lo) * relative
    return lo - slack, hi + slack


class Value(NamedTuple):
    """A layer's values (rows, height, width, channels), and how far each may be off."""

    value: Tensor
    error: Tensor

    def of(self, rows: Tensor) -> "Value":
        """Return the values of some rows."""
        return Value(self.value[rows], self.error[rows])


@dataclass(frozen=True, eq=False)
class Node:
    """A place in the network: the shape of one row's values, and the layers that they are computed from.

    Every layer but the input has `forward(*x)`, its values, and `error(y, unit, *x_and_errors)`: how far outputs of
    magnitude y may be off, for inputs of magnitude x that are off by the error after each. Linear layers have
    `deviations`: how far outputs can move when inputs move within intervals around 0.
    """

    shape: tuple[int, int, int]
    sources: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Input(Node):
    """The input."""

    sources: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Conv(Node):
    """A linear map of windows: a convolution, an average pool, or a linear layer, whose window is the whole layer.

    weight  (groups, outputs per group, height, width, inputs per group)
    edge    zeros added at top, bottom, left and right
    """

    weight: Tensor
    bias: Tensor
    stride: Pair = (1, 1)
    edge: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: Pair = (1, 1)

    @property
    def kernel(self) -> Pair:
        """Return height and width of the window."""
        return self.weight.shape[2], self.weight.shape[3]

    @property
    def terms(self) -> int:
        """Return how many products are summed, in either direction."""
        _, out, high, wide, inner = self.weight.shape
        return max(out, inner) * high * wide

    @cached_property
    def magnitudes(self) -> Tensor:
        """Return the magnitudes of the weights."""
        return self.weight.abs()

    def __call__(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the products of the windows with the weights, without the bias."""
        weight = self.weight if weight is None else weight
        groups, out, high, wide, inner = weight.shape
        seen = windows(x, self.kernel, self.stride, self.dilation, self.edge)  # (rows, h, w, high, wide, channels)
        rows, h, w = seen.shape[:3]
        if groups == 1:
            return seen.reshape(rows, h, w, -1) @ weight.reshape(out, -1).T
        seen = seen.reshape(rows, h, w, high, wide, groups, inner)
        if out == inner == 1:
            return (seen[..., 0] * weight[:, 0, :, :, 0].permute(1, 2, 0)).sum((3, 4))
        return torch.einsum("bhwijgn,goijn->bhwgo", seen, weight).reshape(rows, h, w, -1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the values."""
        return self(x) + self.bias

    def error(self, y: Tensor, unit: float, x: Tensor, error: Tensor) -> Tensor:
        """Return how far outputs of magnitude y may be off."""
        slack = gamma(self.weight[0, 0].numel(), unit, 2 if unit > UNIT else 16)  # the sum with the bias
        spread = self(slack * x + error * (1 + slack), self.magnitudes)
        return (spread + slack * self.bias.abs()) * (1 + slack) + unit * y

    def deviations(self, interval: Interval) -> Interval:
        """Return how far the outputs can move."""
        lo, hi = interval
        middle, width = self((lo + hi) / 2), self((hi - lo) / 2, self.magnitudes)
        width = width * (1 + 4 * gamma(self.terms))
        return middle - width, middle + width

    def back(self, a: Tensor) -> Tensor:
        """Return coefficients (rows, h, w, outputs) as those of windows (rows, h, w, height, width, inputs)."""
        groups, out, high, wide, inner = self.weight.shape
        rows, h, w = a.shape[:3]
        if groups == 1:
            return (a.reshape(-1, out) @ self.weight.reshape(out, -1)).reshape(rows, h, w, high, wide, inner)
        if out == inner == 1:
            return a[:, :, :, None, None] * self.weight[:, 0, :, :, 0].permute(1, 2, 0)
        a = a.reshape(rows, h, w, groups, out)
        return torch.einsum("bhwgo,goijn->bhwijgn", a, self.weight).reshape(rows, h, w, high, wide, -1)


@dataclass(frozen=True, eq=False)
class Scale(Node):
    """A product with a factor and a sum with a shift: a batch norm, or a normalisation of inputs.

    size   bounds the magnitudes of the parts that the shift is the sum of
    """

    factor: Tensor
    shift: Tensor
    size: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return the values."""
        return x * self.factor + self.shift

    def error(self, y: Tensor, unit: float, x: Tensor, error: Tensor) -> Tensor:
        """Return how far outputs may be off."""
        factor = self.factor.abs()
        return (factor * error + 8 * unit * (self.size + x * factor)) * (1 + 8 * unit)

    def deviations(self, interval: Interval) -> Interval:
        """Return how far the outputs can move."""
        one, other = interval[0] * self.factor, interval[1] * self.factor
        return widened(torch.minimum(one, other), torch.maximum(one, other), 16 * UNIT)


@dataclass(frozen=True, eq=False)
class Add(Node):
    """The sum of two values."""

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        """Return the values."""
        return x + other

    def error(self, y: Tensor, unit: float, x: Tensor, error: Tensor, other: Tensor, more: Tensor) -> Tensor:
        """Return how far sums of magnitude y may be off, for inputs that are off by `error` and `more`."""
        return (error + more) * (1 + 4 * unit) + unit * y

    def deviations(self, one: Interval, other: Interval) -> Interval:
        """Return how far the outputs can move."""
        return widened(one[0] + other[0], one[1] + other[1], 4 * UNIT)


@dataclass(frozen=True, eq=False)
class Reshape(Node):
    """The same values in another shape, in torch's order: channels, height, width."""

    before: tuple[int, int, int]

    def forward(self, x: Tensor) -> Tensor:
        """Return the values in the new shape."""
        h, w, c = self.shape
        return x.permute(0, 3, 1, 2).reshape(len(x), c, h, w).permute(0, 2, 3, 1)

    def error(self, y: Tensor, unit: float, x: Tensor, error: Tensor) -> Tensor:
        """Return the errors in the new shape."""
        return self.forward(error)

    def deviations(self, interval: Interval) -> Interval:
        """Return the intervals in the new shape."""
        return self.forward(interval[0]), self.forward(interval[1])

    def back(self, a: Tensor) -> Tensor:
        """Return coefficients in the shape before."""
        h, w, c = self.before
        return a.permute(0, 3, 1, 2).reshape(len(a), c, h, w).permute(0, 2, 3, 1)


@dataclass(frozen=True, eq=False)
class Relu(Node):
    """x where it is positive, `slope` times x where it is negative."""

    slope: float = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Return the values."""
        return x.clamp_min(0) if self.slope == 0 else torch.where(x < 0, x * self.slope, x)

    def error(self, y: Tensor, unit: float, x: Tensor, error: Tensor) -> Tensor:
        """Return the error: a ReLU makes none larger."""
        return error if self.slope == 0 else error + 4 * unit * y


@dataclass(frozen=True, eq=False)
class MaxPool(Node):
    """The largest value of each window."""

    kernel: Pair
    stride: Pair
    edge: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: Pair = (1, 1)

    def windows(self, x: Tensor, beyond: float) -> Tensor:
        """Return the windows (rows, h, w, places, channels), with `beyond` outside the image."""
        found = windows(x, self.kernel, self.stride, self.dilation, self.edge, beyond)
        return found.flatten(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Return the values."""
        return self.windows(x, -torch.inf).amax(3)

    def error(self, y: Tensor, unit: float, x: Tensor, error: Tensor) -> Tensor:
        """Return the largest error of each window."""
        return self.windows(error, 0.0).amax(3)


Layer = Input | Conv | Scale | Add | Reshape | Relu | MaxPool


def windows(
    x: Tensor, kernel: Pair, stride: Pair, dilation: Pair, edge: tuple[int, int, int, int], beyond: float = 0.0
) -> Tensor:
    """Return the values in each window (rows, h, w, height, width, channels), as a view where possible."""
    top, bottom, left, right = edge
    if any(edge):
        x = F.pad(x, (0, 0, left, right, top, bottom), value=beyond)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    seen = x.unfold(1, spans[0], stride[0]).unfold(2, spans[1], stride[1])
    return seen[..., :: dilation[0], :: dilation[1]].permute(0, 1, 2, 4, 5, 3)


def summed(parts: Tensor, layer: Conv | MaxPool, shape: Pair) -> Tensor:
    """Sum windows (rows, h, w, height, width, channels) of a layer in the image before it, which has this shape."""
    top, _, left, _ = layer.edge
    a = overlay(parts, layer)[:, top : top + shape[0], left : left + shape[1]]
    if a.shape[1:3] != shape:  # the last windows end before the image does
        a = F.pad(a, (0, 0, 0, shape[1] - a.shape[2], 0, shape[0] - a.shape[1]))
    return a


def overlay(parts: Tensor, layer: Conv | MaxPool) -> Tensor:
    """Sum windows (rows, h, w, height, width, channels) of a layer where they overlap."""
    rows, h, w, high, wide, channels = parts.shape
    if h == w == 1 and layer.dilation == (1, 1):
        return parts[:, 0, 0]
    (s, t), (d, e) = layer.stride, layer.dilation
    size = (h - 1) * s + (high - 1) * d + 1, (w - 1) * t + (wide - 1) * e + 1
    total = parts.new_zeros(rows, *size, channels)
    for i in range(high):
        for j in range(wide):
            total[:, i * d : i * d + (h - 1) * s + 1 : s, j * e : j * e + (w - 1) * t + 1 : t] += parts[:, :, :, i, j]
    return total
