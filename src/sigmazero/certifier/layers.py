"""The operations of a network, as far as bounds need them: values, intervals of deviations, and coefficients.

Values have the shape (rows, height, width, channels); a vector is an image of one position. A *deviation* is how far a
value is from what it is for the unchanged input: bounds are about deviations, so that whatever no change can reach is
0 and costs nothing, and biases play no part.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from sigmazero.certifier.rounding import UNIT, gamma, outward

Reach = tuple[Tensor, Tensor]
Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Input:
    """The input itself."""

    shape: tuple[int, int, int]
    sources: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Conv:
    """A linear map from windows: a convolution, an average pool, or a linear layer, whose window is everything.

    `weight` is (groups, outputs per group, height, width, inputs per group), `edge` what is added at top, bottom, left
    and right.
    """

    shape: tuple[int, int, int]
    sources: tuple[int, ...]
    weight: Tensor
    bias: Tensor
    stride: Pair = (1, 1)
    edge: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: Pair = (1, 1)

    @property
    def kernel(self) -> Pair:
        """Height and width of the window."""
        return self.weight.shape[2], self.weight.shape[3]

    @property
    def terms(self) -> int:
        """How many products are summed, in either direction."""
        _, out, high, wide, inner = self.weight.shape
        return max(out, inner) * high * wide

    @cached_property
    def magnitudes(self) -> Tensor:
        """Those of the weights."""
        return self.weight.abs()

    def __call__(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """The products of the windows with the weights, without the bias."""
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

    def forward(self, x: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
        """Values, and by how much they may be off."""
        y, slack = self(x) + self.bias, gamma(self.terms)
        spread = self(slack * x.abs() + error * (1 + slack), self.magnitudes)
        return y, (spread + slack * self.bias.abs()) * (1 + slack) + UNIT * y.abs()

    def deviations(self, interval: Reach) -> Reach:
        """What deviations of the inputs within an interval around 0 can do to the outputs."""
        lo, hi = interval
        middle, width = self((lo + hi) / 2), self((hi - lo) / 2, self.magnitudes)
        width = width * (1 + 4 * gamma(self.terms))
        return middle - width, middle + width

    def back(self, a: Tensor) -> Tensor:
        """Coefficients (rows, h, w, outputs) as those of the windows (rows, h, w, height, width, inputs)."""
        groups, out, high, wide, inner = self.weight.shape
        rows, h, w = a.shape[:3]
        if groups == 1:
            return (a.reshape(-1, out) @ self.weight.reshape(out, -1)).reshape(rows, h, w, high, wide, inner)
        if out == inner == 1:
            return a[:, :, :, None, None] * self.weight[:, 0, :, :, 0].permute(1, 2, 0)
        a = a.reshape(rows, h, w, groups, out)
        return torch.einsum("bhwgo,goijn->bhwijgn", a, self.weight).reshape(rows, h, w, high, wide, -1)


@dataclass(frozen=True, eq=False)
class Scale:
    """Every value times a number, plus a number: a batch norm, a normalisation of inputs. `size` bounds the parts of
    the number that is added.
    """

    shape: tuple[int, int, int]
    sources: tuple[int, ...]
    factor: Tensor
    shift: Tensor
    size: Tensor

    def forward(self, x: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
        """Values, and by how much they may be off."""
        y = x * self.factor + self.shift
        return y, (self.factor.abs() * error + 8 * UNIT * (self.size + (x * self.factor).abs())) * (1 + 8 * UNIT)

    def deviations(self, interval: Reach) -> Reach:
        """What deviations of the inputs can do to the outputs."""
        one, other = interval[0] * self.factor, interval[1] * self.factor
        return outward(torch.minimum(one, other), torch.maximum(one, other), 16 * UNIT)


@dataclass(frozen=True, eq=False)
class Add:
    """The sum of two values."""

    shape: tuple[int, int, int]
    sources: tuple[int, ...]

    def forward(self, x: Tensor, error: Tensor, other: Tensor, more: Tensor) -> tuple[Tensor, Tensor]:
        """Values, and by how much they may be off."""
        y = x + other
        return y, (error + more) * (1 + 4 * UNIT) + UNIT * y.abs()

    def deviations(self, one: Reach, other: Reach) -> Reach:
        """What deviations of the inputs can do to the outputs."""
        return outward(one[0] + other[0], one[1] + other[1], 4 * UNIT)


@dataclass(frozen=True, eq=False)
class Reshape:
    """The same values in another shape, in the order of torch: channels, height, width."""

    shape: tuple[int, int, int]
    sources: tuple[int, ...]
    before: tuple[int, int, int]

    def __call__(self, x: Tensor) -> Tensor:
        """Values in the new shape."""
        h, w, c = self.shape
        return x.permute(0, 3, 1, 2).reshape(len(x), c, h, w).permute(0, 2, 3, 1)

    def forward(self, x: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
        """Values, and by how much they may be off."""
        return self(x), self(error)

    def deviations(self, interval: Reach) -> Reach:
        """The same."""
        return self(interval[0]), self(interval[1])

    def back(self, a: Tensor) -> Tensor:
        """Coefficients in the shape before."""
        h, w, c = self.before
        return a.permute(0, 3, 1, 2).reshape(len(a), c, h, w).permute(0, 2, 3, 1)


@dataclass(frozen=True, eq=False)
class Relu:
    """x, or a share of it below 0."""

    shape: tuple[int, int, int]
    sources: tuple[int, ...]
    slope: float = 0.0

    def __call__(self, x: Tensor) -> Tensor:
        """Values."""
        return x.clamp_min(0) if self.slope == 0 else torch.where(x < 0, x * self.slope, x)

    def forward(self, x: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
        """Values, and by how much they may be off: no more than before."""
        y = self(x)
        return y, error if self.slope == 0 else error + 2 * UNIT * y.abs()


@dataclass(frozen=True, eq=False)
class MaxPool:
    """The largest value of each window."""

    shape: tuple[int, int, int]
    sources: tuple[int, ...]
    kernel: Pair
    stride: Pair
    edge: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: Pair = (1, 1)

    def seen(self, x: Tensor, beyond: float) -> Tensor:
        """The windows (rows, h, w, places, channels); `beyond` stands for what lies outside the image."""
        found = windows(x, self.kernel, self.stride, self.dilation, self.edge, beyond)
        return found.flatten(3, 4)

    def forward(self, x: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
        """Values, and by how much they may be off: no more than the worst of the window."""
        return self.seen(x, -torch.inf).amax(3), self.seen(error, 0.0).amax(3)


Layer = Input | Conv | Scale | Add | Reshape | Relu | MaxPool


def windows(
    x: Tensor, kernel: Pair, stride: Pair, dilation: Pair, edge: tuple[int, int, int, int], beyond: float = 0.0
) -> Tensor:
    """What each window sees: (rows, h, w, height, width, channels), without a copy where that can be."""
    top, bottom, left, right = edge
    if any(edge):
        x = F.pad(x, (0, 0, left, right, top, bottom), value=beyond)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    seen = x.unfold(1, spans[0], stride[0]).unfold(2, spans[1], stride[1])
    return seen[..., :: dilation[0], :: dilation[1]].permute(0, 1, 2, 4, 5, 3)


def overlay(parts: Tensor, stride: Pair, dilation: Pair) -> Tensor:
    """Windows (rows, h, w, height, width, channels) laid over each other and summed."""
    rows, h, w, high, wide, channels = parts.shape
    if h == w == 1 and dilation == (1, 1):
        return parts[:, 0, 0]
    (s, t), (d, e) = stride, dilation
    size = (h - 1) * s + (high - 1) * d + 1, (w - 1) * t + (wide - 1) * e + 1
    total = parts.new_zeros(rows, *size, channels)
    for i in range(high):
        for j in range(wide):
            total[:, i * d : i * d + (h - 1) * s + 1 : s, j * e : j * e + (w - 1) * t + 1 : t] += parts[:, :, :, i, j]
    return total
