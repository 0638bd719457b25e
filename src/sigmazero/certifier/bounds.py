"""Bounds of a network's margins over many regions at once.

Each layer gets intervals of deviations from those of the layer before. Neurons whose relaxation would be loose get
better intervals by going back to the input (`crown`). Linear layers need none.
"""

import math
from collections.abc import Callable
from enum import IntEnum

import torch
from torch import Tensor

from sigmazero.certifier import relaxation
from sigmazero.certifier.affine import AffinePass
from sigmazero.certifier.crown import Known, LinearForms, MovingBox, least, ringed
from sigmazero.certifier.graph import Network
from sigmazero.certifier.layers import UNIT, Add, Conv, Input, Interval, Layer, MaxPool, Relu, Scale, Value
from sigmazero.certifier.regions import OneSitePerGroup
from sigmazero.certifier.relaxation import Relaxation


class Strength(IntEnum):
    """How inner layers are bounded: by intervals, by planes over the free features, or by going back to the input."""

    INTERVALS = 0
    PLANES = 1
    FULL = 2


class NetworkBounds:
    """Bounds on the margins of one network.

    size   most coefficients of a batch of forms
    tick   called before every step; it may raise an error to stop
    """

    def __init__(self, network: Network, size: int = 2**21) -> None:
        self.network, self.size = network, size
        self.tick: Callable[[], None] = lambda: None
        self._linear = _linear(network)
        places = range(len(network.layers))
        self._readers = [[k for k in places if place in network.layers[k].sources] for place in places]
        self._costs = [_cost(network, place) for place in places]
        growth = math.prod(map(_growth, network.layers))
        self._lost = min(1e300, 1e-300 * growth)  # the most that underflow can take away
        self.task_size = sum(_task_size(network, place) for place in places)

    def margins(self, clean: list[Value], region: OneSitePerGroup, labels: Tensor, strength: Strength) -> Tensor:
        """Return lower bounds of the label's logit minus each other one over each region (tasks, classes).

        clean    the layers' values for the inputs that the region's rows name
        labels   the class of each task; its own bound is infinite
        """
        with torch.inference_mode():
            known, _, fall = self._layers(clean, region, labels, strength)
            logits = clean[-1].of(region.rows)
            logits = Value(logits.value[:, 0, 0], logits.error[:, 0, 0])
            label = labels[:, None]
            left = torch.ones_like(logits.value, dtype=torch.bool)
            if fall is None:
                fall = torch.zeros_like(logits.value)
            else:  # margins that planes prove need no more
                left = _fallen(logits, label, fall) <= 0
            tasks, other = left.scatter(1, label, False).nonzero().unbind(1)
            fall[tasks, other] = self._least(known, len(self.network.layers) - 1, tasks, None, labels[tasks], other)
            return _fallen(logits, label, fall).scatter(1, label, torch.inf) - self._lost

    def intervals(
        self, clean: list[Value], region: OneSitePerGroup, labels: Tensor, strength: Strength
    ) -> list[Interval]:
        """Return how far every layer's values can move over each region."""
        with torch.inference_mode():
            return self._layers(clean, region, labels, strength)[1]

    def _layers(
        self, clean: list[Value], region: OneSitePerGroup, labels: Tensor, strength: Strength
    ) -> tuple[Known, list[Interval], Tensor | None]:
        """Return the bounds of all layers, their intervals, and how far margins can fall by planes, if known."""
        known, intervals = Known(self.network, region, self.tick), list[Interval]()
        forward = None
        if strength is Strength.PLANES or (strength is Strength.FULL and region.few):
            forward = AffinePass(self.network.layers, region)
        for place, layer in enumerate(self.network.layers):
            self.tick()
            if isinstance(layer, Input):
                intervals.append(region.interval)
            elif isinstance(layer, Relu | MaxPool):
                source = layer.sources[0]
                value = clean[source].of(region.rows)
                exact = forward is not None and self._linear[source]  # a plane is exact there
                if not exact and (self._linear[source] or strength is Strength.FULL):
                    wanted = self._wanted(place, layer, value, intervals[source])
                    intervals[source] = self._better(known, source, value, intervals[source], wanted, layer)
                lines = relaxation.relax(layer, value, intervals[source])
                known.lines[place] = Relaxation(ringed(lines.packed), lines.slopes, lines.largest)
                intervals.append(relaxation.deviations(layer, value, intervals[source]))
                known.boxes[place] = MovingBox.around((intervals[place][1] > intervals[place][0]).any(3))
                if forward is not None:
                    forward.step(place, clean)
            elif forward is not None:
                forward.step(place, clean)
                intervals.append(forward.ends(place))
            else:
                intervals.append(layer.deviations(*(intervals[source] for source in layer.sources)))
            linear = not isinstance(layer, Input | Relu | MaxPool)
            lo, hi = intervals[place]
            known.widths[place] = forward.width(place) if forward and linear else (hi - lo).flatten(1).amax(1)
        return known, intervals, None if forward is None else forward.margins(labels)

    def _wanted(self, place: int, layer: Relu | MaxPool, clean: Value, interval: Interval) -> Tensor:
        """Return which neurons should get better intervals."""
        source = layer.sources[0]
        if self._linear[source] and not isinstance(self.network.layers[source], Input):
            return interval[1] > interval[0]
        wanted = relaxation.loose(layer, clean, interval)
        for reader in self._readers[place] if isinstance(layer, Relu) else ():
            pool = self.network.layers[reader]
            if isinstance(pool, MaxPool):
                moved = relaxation.deviations(layer, clean, interval)
                wanted = wanted | relaxation.loose(pool, Value(layer.forward(clean.value), clean.error), moved)
        return wanted

    def _better(
        self, known: Known, place: int, clean: Value, interval: Interval, wanted: Tensor, layer: Relu | MaxPool
    ) -> Interval:
        """Narrow some intervals: first the end nearer to 0, then the other if the ReLU is still unstable."""
        if isinstance(self.network.layers[place], Input | Relu | MaxPool):
            return interval
        lo, hi = interval
        near = clean.value >= 0
        lo = self._end(known, place, lo, wanted & near, 1.0)
        hi = self._end(known, place, hi, wanted & ~near, -1.0)
        if isinstance(layer, Relu) and not self._linear[place]:
            wanted = wanted & relaxation.loose(layer, clean, (lo, hi))
        lo = self._end(known, place, lo, wanted & ~near, 1.0)
        return lo, self._end(known, place, hi, wanted & near, -1.0)

    def _end(self, known: Known, place: int, end: Tensor, wanted: Tensor, sign: float) -> Tensor:
        """Narrow one end of the intervals of some neurons of a layer."""
        index = wanted.nonzero()
        if not len(index):
            return end
        tasks, y, x, c = index.unbind(1)
        shape = self.network.layers[place].shape
        origin = index[:, 1:3] if shape[0] * shape[1] > 1 else None
        found = self._least(known, place, tasks, origin, *((c, None) if sign > 0 else (None, c)))
        end = end.clone()
        now = end[tasks, y, x, c]
        # Coefficients that overflow give NaN: then the end stays.
        end[tasks, y, x, c] = torch.fmax(now, found) if sign > 0 else torch.fmin(now, -found)
        return end

    def _least(
        self, known: Known, place: int, tasks: Tensor, origin: Tensor | None, plus: Tensor | None, minus: Tensor | None
    ) -> Tensor:
        """Return the least values of one channel, or of minus one, or of the difference of two, batch by batch."""
        step, channels = max(1, self.size // self._costs[place]), self.network.layers[place].shape[2]
        found = [torch.zeros(0, dtype=torch.float64, device=tasks.device)]
        for begin in range(0, len(tasks), step):
            part = slice(begin, begin + step)
            forms = torch.zeros(len(tasks[part]), channels, dtype=torch.float64, device=tasks.device)
            for channel, sign in ((plus, 1.0), (minus, -1.0)):
                if channel is not None:
                    forms.scatter_(1, channel[part, None], sign)
            window = None if origin is None else origin[part]
            found.append(least(known, place, LinearForms(forms[:, None, None], tasks[part], window)))
        return torch.cat(found)


def _fallen(logits: Value, label: Tensor, fall: Tensor) -> Tensor:
    """Return the margins of clean logits minus how far they can fall, rounded down."""
    own, error = logits.value.gather(1, label), logits.error.gather(1, label)
    slack = error + logits.error + 4 * UNIT * (own.abs() + logits.value.abs() + fall.abs())
    return own - logits.value + fall - slack


def _growth(layer: Layer) -> float:
    """Return by which factor a layer can enlarge a change, at least 1."""
    if isinstance(layer, Conv):
        return max(1.0, float(layer.magnitudes.sum((2, 3, 4)).amax()))
    if isinstance(layer, Scale):
        return max(1.0, float(layer.factor.abs().amax()))
    return 2.0 if isinstance(layer, Add) else 1.0


def _linear(network: Network) -> list[bool]:
    """Return which layers are linear in the input."""
    found: list[bool] = []
    for layer in network.layers:
        found.append(not isinstance(layer, Relu | MaxPool) and all(found[source] for source in layer.sources))
    return found


def _task_size(network: Network, place: int) -> int:
    """Estimate how many numbers a layer needs for one task."""
    layer = network.layers[place]
    h, w, c = layer.shape
    if isinstance(layer, Conv):
        groups, _, high, wide, inner = layer.weight.shape
        return h * w * high * wide * inner * groups // 4 + 4 * h * w * c
    return 10 * h * w * c * (math.prod(layer.kernel) if isinstance(layer, MaxPool) else 1)


def _cost(network: Network, place: int) -> int:
    """Return the most numbers that a form of a layer needs on its way back."""
    sizes: dict[int, tuple[int, int]] = {place: (1, 1)}
    most = 1
    for at in range(place, 0, -1):
        if at not in sizes:
            continue
        layer, (h, w) = network.layers[at], sizes[at]
        channels = layer.shape[2]
        most = max(most, h * w * channels * (5 if isinstance(layer, Relu) else 1))
        if isinstance(layer, Conv | MaxPool):
            inner = network.layers[layer.sources[0]].shape[2]
            most = max(most, h * w * math.prod(layer.kernel) * inner * (3 if isinstance(layer, MaxPool) else 1))
            h, w = (
                (n - 1) * s + (k - 1) * d + 1
                for n, s, k, d in zip((h, w), layer.stride, layer.kernel, layer.dilation, strict=True)
            )
        for source in layer.sources:
            shape = network.layers[source].shape
            before = sizes.get(source, (1, 1))
            sizes[source] = min(shape[0], max(before[0], h)), min(shape[1], max(before[1], w))
            if at != place and shape[0] * shape[1] == 1:
                sizes[source] = (1, 1)
    return most
