"""Linear relaxations of the layers that are not linear: ReLU and max pooling, in deviations from the clean values.

With z the clean value, d its deviation and f the layer: for every d in its interval, `f(z + d) - f(z)` lies between
`low * d + low_offset` and `high * d + high_offset`. Where the layer is linear over the whole interval, the two lines
are the same and exact.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sigmazero.certifier.layers import UNIT, Interval, MaxPool, Relu

OUTWARD = 1 + 8 * UNIT


@dataclass(frozen=True, eq=False)
class Relaxation:
    """The two lines of every value.

    packed   slopes below and above, then offsets below and above (tasks, height, width, parts)
    slopes   number of slopes of a line: 1 for a ReLU, one per place of the window for a max pool
    largest  the largest offset of each task
    """

    packed: Tensor
    slopes: int
    largest: Tensor

    @property
    def channels(self) -> int:
        """Return the number of channels of the layer."""
        return self.packed.shape[3] // (2 * self.slopes + 2)


def ends(z: Tensor, error: Tensor, interval: Interval) -> tuple[Tensor, Tensor, Tensor]:
    """Return the smallest and the largest value, widened by rounding, and twice the width added."""
    lo, hi = interval
    slack = error + 8 * UNIT * (z.abs() + torch.maximum(hi, -lo))
    return z + lo - slack, z + hi + slack, 2 * slack


def unstable(layer: Relu, z: Tensor, error: Tensor, interval: Interval) -> Tensor:
    """Return where a ReLU changes its slope within the interval."""
    low, high, _ = ends(z, error, interval)
    return (low < 0) & (high > 0) & (interval[1] > interval[0])


def relax_relu(layer: Relu, z: Tensor, error: Tensor, interval: Interval) -> Relaxation:
    """Relax a ReLU to a triangle; the slope below is that of the larger part of the interval."""
    low, high, slack = ends(z, error, interval)
    moves = interval[1] > interval[0]
    bends = (low < 0) & (high > 0) & moves
    steep = ((high - layer.slope * low) / (high - low) * OUTWARD).clamp_max(1.0)
    slope = torch.full_like(z, layer.slope)  # in float64, which a number of Python would not be
    linear = torch.where(low >= 0, 1.0, slope) * moves
    up = torch.where(bends, steep, linear)
    down = torch.where(bends, torch.where(high > -low, 1.0, slope), linear)
    value = layer.forward(z)
    over = torch.where(bends, steep * (z - low) + layer.slope * low - value + slack, 0.0)
    under = torch.where(bends, down * z - value - slack, 0.0)
    return Relaxation(torch.cat((down, up, under, over), 3), 1, _largest(under, over))


def relu_deviations(layer: Relu, z: Tensor, error: Tensor, interval: Interval) -> Interval:
    """Return how far the output of a ReLU can move."""
    low, high, slack = ends(z, error, interval)
    value, moves = layer.forward(z), interval[1] > interval[0]
    lo, hi = layer.forward(low) - value - slack, layer.forward(high) - value + slack
    dead = (high <= 0) & (layer.slope == 0)
    moves = moves & ~dead
    return torch.where(moves, lo, 0.0).clamp_max(0.0), torch.where(moves, hi, 0.0).clamp_min(0.0)


def _windows(layer: MaxPool, z: Tensor, error: Tensor, interval: Interval) -> tuple[Tensor, ...]:
    """Return value, ends, slack and whether it moves, for every place of every window."""
    low, high, slack = ends(z, error, interval)
    moves = (interval[1] > interval[0]).to(z.dtype)
    out = -torch.inf
    return (*(layer.windows(t, out) for t in (z, low, high)), layer.windows(slack, 0.0), layer.windows(moves, 0.0) > 0)


def contested(layer: MaxPool, z: Tensor, error: Tensor, interval: Interval) -> Tensor:
    """Return which inputs of a max pool may be the largest of their window, among several."""
    _, low, high, _, moves = _windows(layer, z, error, interval)
    rivals = high > low.amax(3, keepdim=True)
    open_ = rivals & (rivals.sum(3, keepdim=True) > 1) & moves.any(3, keepdim=True)
    return _spread(layer, open_, z.shape) & (interval[1] > interval[0])


def _spread(layer: MaxPool, seen: Tensor, shape: torch.Size) -> Tensor:
    """Return for each place of the image whether it is true in any window."""
    n, h, w, c = shape
    top, bottom, left, right = layer.edge
    (high, wide), (s, t), (d, e) = layer.kernel, layer.stride, layer.dilation
    total = torch.zeros(n, h + top + bottom, w + left + right, c, dtype=torch.bool, device=seen.device)
    rows, columns = seen.shape[1], seen.shape[2]
    for i in range(high):
        for j in range(wide):
            part = total[:, i * d : i * d + (rows - 1) * s + 1 : s, j * e : j * e + (columns - 1) * t + 1 : t]
            part |= seen[:, :, :, i * wide + j]
    return total[:, top : top + h, left : left + w]


def relax_pool(layer: MaxPool, z: Tensor, error: Tensor, interval: Interval) -> Relaxation:
    """Relax a max pool: below by one of its inputs, above by a plane over the rivals or by the largest end."""
    z, low, high, slack, moves = _windows(layer, z, error, interval)
    slack = slack.amax(3)
    least, first = low.max(3, keepdim=True)
    value, top = z.amax(3), high.amax(3)
    places = torch.arange(low.shape[3], device=low.device)[:, None]
    own = places == first  # the input with the highest low end
    rival = (high > least) & ~own
    contested_ = rival.any(3) & moves.any(3)
    chosen = own.to(low.dtype) * moves.any(3, keepdim=True)
    # Above: own + the sum over the rivals of (high - least) / (high - low) * (rival - its low end).
    share = torch.where(rival, ((high - least) / (high - low) * OUTWARD).clamp_max(1.0), 0.0)
    plane = torch.where(own, 1.0, share)
    over = (torch.where(own, z, 0.0) + torch.where(rival, share * (z - low), 0.0)).sum(3) - value
    over = over + slack * len(places) * 2
    flat = top - value + slack
    better = (flat < over)[:, :, :, None]
    up = torch.where(better, 0.0, plane) * moves.any(3, keepdim=True)
    up = torch.where(contested_[:, :, :, None], up, chosen)
    over = torch.where(contested_, torch.minimum(over, flat), 0.0)
    under = torch.where(contested_, torch.where(own, z, 0.0).sum(3) - value - slack, 0.0)
    return Relaxation(torch.cat((chosen.flatten(3), up.flatten(3), under, over), 3), len(places), _largest(under, over))


def pool_deviations(layer: MaxPool, z: Tensor, error: Tensor, interval: Interval) -> Interval:
    """Return how far the output of a max pool can move."""
    z, low, high, slack, moves = _windows(layer, z, error, interval)
    value, slack, moves = z.amax(3), slack.amax(3), moves.any(3)
    lo, hi = low.amax(3) - value - slack, high.amax(3) - value + slack
    return torch.where(moves, lo, 0.0).clamp_max(0.0), torch.where(moves, hi, 0.0).clamp_min(0.0)


def _largest(under: Tensor, over: Tensor) -> Tensor:
    return torch.maximum(over, -under).flatten(1).amax(1)
