"""Bounds of a network's margins over many regions at once.

Each layer gets intervals of deviations from those of the layer before. Neurons whose relaxation would be loose get
better intervals by going back to the input (`crown`). Linear layers need none.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from sigmazero.certifier import relaxation
from sigmazero.certifier.affine import AffinePass
from sigmazero.certifier.crown import Known, LinearForms, MovingBox, least, ringed
from sigmazero.certifier.graph import Network
from sigmazero.certifier.layers import UNIT, Add, Conv, Input, Interval, Layer, MaxPool, Relu, Scale
from sigmazero.certifier.regions import OneSitePerGroup
from sigmazero.certifier.relaxation import Relaxation


class Strength(IntEnum):
    """How inner layers are bounded: by intervals, by planes over the free features, or by going back to the input."""

    INTERVALS = 0
    PLANES = 1
    FULL = 2


@dataclass(frozen=True, eq=False)
class CleanValues:
    """Every layer's values for some inputs, and how far they may be off."""

    values: list[Tensor]
    errors: list[Tensor]

    @staticmethod
    def of(bounds: "NetworkBounds", x: Tensor) -> "CleanValues":
        """Return the values for inputs (rows, height, width, channels)."""
        with torch.inference_mode():
            return CleanValues(*bounds.network.values(x, bounds.tick))


class NetworkBounds:
    """Bounds on the margins of one network.

    size   most coefficients of a batch of forms
    tick   called before every step; it may raise an error to stop
    """

    def __init__(self, network: Network, size: int = 2**21) -> None:
        self.network, self.size = network, size
        self.tick: Callable[[], None] = lambda: None
        self._linear = _linear(network)
        self._costs = [_cost(network, place) for place in range(len(network.layers))]
        self._lost = min(
            1e300, 1e-300 * math.prod(map(_growth, network.layers))
        )  # the most that underflow can take away
        self.task_size = sum(_task_size(network, place) for place in range(len(network.layers)))

    def margins(
        self, clean: CleanValues, rows: Tensor, labels: Tensor, region: OneSitePerGroup, strength: Strength
    ) -> Tensor:
        """Return lower bounds of the label's logit minus each other one over each region (tasks, classes).

        `rows` says which clean input is a task's; a task's own class has infinity.
        """
        with torch.inference_mode():
            known, first = self._layers(clean, rows, labels, region, strength)
            logits, errors = (t[-1][rows][:, 0, 0] for t in (clean.values, clean.errors))
            classes = logits.shape[1]
            tasks = torch.arange(len(rows), device=rows.device).repeat_interleave(classes)
            other = torch.arange(classes, device=rows.device).repeat(len(rows))
            label = labels[tasks]
            result = torch.full((len(rows), classes), torch.inf, dtype=torch.float64, device=rows.device)
            if first is not None:  # margins that planes prove need no more
                result = self._total(logits, errors, tasks, label, other, first.flatten()).view_as(result)
            result[torch.arange(len(rows), device=rows.device), labels] = torch.inf
            left = (other != label) & ((result.flatten() <= 0) | (first is None))
            tasks, other, label = tasks[left], other[left], label[left]
            forms = torch.zeros(len(tasks), classes, dtype=torch.float64, device=rows.device)
            forms.scatter_(1, label[:, None], 1.0).scatter_(1, other[:, None], -1.0)
            found = self._least(known, len(self.network.layers) - 1, forms[:, None, None], tasks, None)
            result[tasks, other] = self._total(logits, errors, tasks, label, other, found)
        return result - self._lost

    @staticmethod
    def _total(logits: Tensor, errors: Tensor, tasks: Tensor, label: Tensor, other: Tensor, found: Tensor) -> Tensor:
        """Return margins of the clean input minus how far they can fall, rounded down."""
        own, its = (logits[tasks, k] for k in (label, other))
        slack = errors[tasks, label] + errors[tasks, other] + 4 * UNIT * (own.abs() + its.abs() + found.abs())
        return own - its + found - slack

    def intervals(
        self, clean: CleanValues, rows: Tensor, labels: Tensor, region: OneSitePerGroup, strength: Strength
    ) -> list[Interval]:
        """Return how far every layer's values can move over each region."""
        found: dict[int, Interval] = {}
        with torch.inference_mode():
            self._layers(clean, rows, labels, region, strength, found)
        return [found[place] for place in range(len(self.network.layers))]

    def _layers(
        self,
        clean: CleanValues,
        rows: Tensor,
        labels: Tensor,
        region: OneSitePerGroup,
        strength: Strength,
        intervals: dict[int, Interval] | None = None,
    ) -> tuple[Known, Tensor | None]:
        """Return relaxations and widths of all layers, and how far margins can fall by planes, if there are any.

        intervals   filled with the interval of every layer
        """
        known = Known(self.network, region, self.tick)
        forward = None
        if strength is Strength.PLANES or (strength is Strength.FULL and region.few):
            forward = AffinePass(self.network.layers, region, rows)
        readers, keep = self.network.readers, intervals is not None
        intervals = {} if intervals is None else intervals
        for place, layer in enumerate(self.network.layers):
            self.tick()
            if isinstance(layer, Input):
                intervals[place] = region.interval
            elif isinstance(layer, Relu | MaxPool):
                source = layer.sources[0]
                z, error = clean.values[source][rows], clean.errors[source][rows]
                exact = forward is not None and self._linear[source]  # a plane is exact there
                if not exact and (self._linear[source] or strength is Strength.FULL):
                    wanted = self._wanted(place, layer, z, error, intervals[source])
                    intervals[source] = self._better(known, source, z, error, intervals[source], wanted, layer)
                self._relax(known, place, layer, z, error, intervals)
                if forward is not None:
                    forward.step(place, clean.values, clean.errors)
            elif forward is not None:
                forward.step(place, clean.values, clean.errors)
                intervals[place] = forward.ends(place)
            else:
                intervals[place] = layer.deviations(*(intervals[source] for source in layer.sources))
            linear = not isinstance(layer, Input | Relu | MaxPool)
            known.widths[place] = forward.width(place) if forward and linear else _width(intervals[place])
            for source in layer.sources:
                if not keep and max(readers[source]) <= place:
                    intervals.pop(source, None)
        return known, None if forward is None else forward.margins(labels)

    def _relax(
        self, known: Known, place: int, layer: Relu | MaxPool, z: Tensor, error: Tensor, intervals: dict[int, Interval]
    ) -> None:
        """Relax a layer, and note how far its outputs can move."""
        given = z, error, intervals[layer.sources[0]]
        if isinstance(layer, Relu):
            lines, moved = relaxation.relax_relu(layer, *given), relaxation.relu_deviations(layer, *given)
        else:
            lines, moved = relaxation.relax_pool(layer, *given), relaxation.pool_deviations(layer, *given)
        known.lines[place] = Relaxation(ringed(lines.packed), lines.slopes, lines.largest)
        intervals[place] = moved
        known.boxes[place] = MovingBox.around((moved[1] > moved[0]).any(3))

    def _wanted(self, place: int, layer: Layer, z: Tensor, error: Tensor, interval: Interval) -> Tensor:
        """Return which neurons should get better intervals."""
        source = layer.sources[0]
        if self._linear[source] and not isinstance(self.network.layers[source], Input):
            return interval[1] > interval[0]
        if isinstance(layer, MaxPool):
            return relaxation.contested(layer, z, error, interval)
        assert isinstance(layer, Relu)
        wanted = relaxation.unstable(layer, z, error, interval)
        for reader in self.network.readers[place]:
            pool = self.network.layers[reader]
            if isinstance(pool, MaxPool):
                moved = relaxation.relu_deviations(layer, z, error, interval)
                wanted = wanted | relaxation.contested(pool, layer.forward(z), error, moved)
        return wanted

    def _better(
        self, known: Known, place: int, z: Tensor, error: Tensor, interval: Interval, wanted: Tensor, layer: Layer
    ) -> Interval:
        """Narrow some intervals: first the end nearer to 0, then the other if the ReLU is still unstable."""
        if isinstance(self.network.layers[place], Input | Relu | MaxPool):
            return interval
        lo, hi = interval
        near = z >= 0
        lo = self._end(known, place, lo, wanted & near, 1.0)
        hi = self._end(known, place, hi, wanted & ~near, -1.0)
        if isinstance(layer, Relu) and not self._linear[place]:
            wanted = wanted & relaxation.unstable(layer, z, error, (lo, hi))
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
        found = self._least(known, place, (c, sign), tasks, origin)
        end = end.clone()
        now = end[tasks, y, x, c]
        # Coefficients that overflow give NaN: then the end stays.
        end[tasks, y, x, c] = torch.fmax(now, found) if sign > 0 else torch.fmin(now, -found)
        return end

    def _least(
        self, known: Known, place: int, a: Tensor | tuple[Tensor, float], tasks: Tensor, origin: Tensor | None
    ) -> Tensor:
        """Return the least values of forms, batch by batch; a form may be given as a channel and a sign."""
        step = max(1, self.size // self._costs[place])
        found = [torch.zeros(0, dtype=torch.float64, device=tasks.device)]
        for begin in range(0, len(tasks), step):
            part = slice(begin, begin + step)
            if isinstance(a, Tensor):
                forms = a[part]
            else:
                channels = self.network.layers[place].shape[2]
                forms = torch.zeros(len(tasks[part]), channels, dtype=torch.float64, device=tasks.device)
                forms.scatter_(1, a[0][part, None], a[1])
                forms = forms[:, None, None]
            found.append(least(known, place, LinearForms(forms, tasks[part], None if origin is None else origin[part])))
        return torch.cat(found)


def _width(interval: Interval) -> Tensor:
    """Return the width of each task's widest interval."""
    return (interval[1] - interval[0]).flatten(1).amax(1)


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
