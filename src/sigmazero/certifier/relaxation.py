"""Linear relaxations of the layers that are not linear: ReLU and max pooling, in deviations from the clean values.

With z the clean value, d its deviation and f the layer: for every d in its interval, `f(z + d) - f(z)` lies between
`low * d + low_offset` and `high * d + high_offset`. Where the layer is linear over the whole interval, the two lines
are the same and exact.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sigmazero.certifier.layers import UNIT, Interval, MaxPool, Relu, Value, summed

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


def relax(layer: Relu | MaxPool, clean: Value, interval: Interval) -> Relaxation:
    """Return the lines of a layer whose input has these clean values and may move within an interval."""
    return relax_relu(layer, clean, interval) if isinstance(layer, Relu) else relax_pool(layer, clean, interval)


def deviations(layer: Relu | MaxPool, clean: Value, interval: Interval) -> Interval:
    """Return how far the output of a layer can move."""
    if isinstance(layer, Relu):
        value, moves = layer.forward(clean.value), interval[1] > interval[0]
        low, high, slack = _ends(clean, interval)
        moves = moves & ~((high <= 0) & (layer.slope == 0))
        low, high = layer.forward(low), layer.forward(high)
    else:
        z, low, high, slack, moves = _windows(layer, clean, interval)
        value, low, high, slack, moves = z.amax(3), low.amax(3), high.amax(3), slack.amax(3), moves.any(3)
    lo, hi = low - value - slack, high - value + slack
    return torch.where(moves, lo, 0.0).clamp_max(0.0), torch.where(moves, hi, 0.0).clamp_min(0.0)


def loose(layer: Relu | MaxPool, clean: Value, interval: Interval) -> Tensor:
    """Return which inputs make the lines differ: where a ReLU bends, and the rivals of a max pool's window."""
    if isinstance(layer, Relu):
        low, high, _ = _ends(clean, interval)
        return (low < 0) & (high > 0) & (interval[1] > interval[0])
    _, low, high, _, moves = _windows(layer, clean, interval)
    rivals = high > low.amax(3, keepdim=True)
    open_ = rivals & (rivals.sum(3, keepdim=True) > 1) & moves.any(3, keepdim=True)
    rows, h, w, _, channels = open_.shape
    seen = open_.view(rows, h, w, *layer.kernel, channels)
    return summed(seen, layer, (clean.value.shape[1], clean.value.shape[2])) & (interval[1] > interval[0])


def relax_relu(layer: Relu, clean: Value, interval: Interval) -> Relaxation:
    """Relax a ReLU to a triangle; the slope below is that of the larger part of the interval."""
    z = clean.value
    low, high, slack = _ends(clean, interval)
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


def relax_pool(layer: MaxPool, clean: Value, interval: Interval) -> Relaxation:
    """Relax a max pool: below by one of its inputs, above by a plane over the rivals or by the largest end."""
    z, low, high, slack, moves = _windows(layer, clean, interval)
    slack, moves = slack.amax(3), moves.any(3, keepdim=True)
    least, first = low.max(3, keepdim=True)
    value, top = z.amax(3), high.amax(3)
    places = torch.arange(low.shape[3], device=low.device)[:, None]
    own = places == first  # the input with the highest low end
    rival = (high > least) & ~own
    contested = rival.any(3, keepdim=True) & moves
    chosen = own.to(low.dtype) * moves
    # Above: own + the sum over the rivals of (high - least) / (high - low) * (rival - its low end).
    share = torch.where(rival, ((high - least) / (high - low) * OUTWARD).clamp_max(1.0), 0.0)
    over = (torch.where(own, z, 0.0) + torch.where(rival, share * (z - low), 0.0)).sum(3) - value
    over = over + slack * len(places) * 2
    flat = top - value + slack
    up = torch.where((flat < over)[:, :, :, None], 0.0, torch.where(own, 1.0, share)) * moves
    up = torch.where(contested, up, chosen)
    contested = contested[:, :, :, 0]
    over = torch.where(contested, torch.minimum(over, flat), 0.0)
    under = torch.where(contested, torch.where(own, z, 0.0).sum(3) - value - slack, 0.0)
    return Relaxation(torch.cat((chosen.flatten(3), up.flatten(3), under, over), 3), len(places), _largest(under, over))


def _ends(clean: Value, interval: Interval) -> tuple[Tensor, Tensor, Tensor]:
    """Return the smallest and the largest value, widened by rounding, and twice the width added."""
    lo, hi = interval
    slack = clean.error + 8 * UNIT * (clean.value.abs() + torch.maximum(hi, -lo))
    return clean.value + lo - slack, clean.value + hi + slack, 2 * slack


def _windows(layer: MaxPool, clean: Value, interval: Interval) -> tuple[Tensor, ...]:
    """Return value, ends, slack and whether it moves, for every place of every window."""
    low, high, slack = _ends(clean, interval)
    values = (layer.windows(each, -torch.inf) for each in (clean.value, low, high))
    moves = (interval[1] > interval[0]).to(slack.dtype)
    return *values, layer.windows(slack, 0.0), layer.windows(moves, 0.0) > 0


def _largest(under: Tensor, over: Tensor) -> Tensor:
    return torch.maximum(over, -under).flatten(1).amax(1)
