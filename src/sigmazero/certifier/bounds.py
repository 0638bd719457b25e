"""Bounds of a network's margins over many regions at once.

Layer by layer: intervals of deviations from those of the layer before, then, for the neurons that bend within theirs,
better ones by going back to the input with straight lines (`backward`). What does not bend needs none.
"""

import math
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from sigmazero.certifier import relax
from sigmazero.certifier.backward import Known, least
from sigmazero.certifier.forms import Crop, Forms, ringed
from sigmazero.certifier.graph import Layered
from sigmazero.certifier.layers import Add, Conv, Input, Layer, MaxPool, Reach, Relu, Scale
from sigmazero.certifier.planes import Forward
from sigmazero.certifier.regions import Groups, Region
from sigmazero.certifier.rounding import UNIT


class Effort(IntEnum):
    """What inner layers are bounded by: intervals; planes over the free features; and, on top of either, forms that go
    back to the input from every neuron that bends.
    """

    INTERVALS = 0
    PLANES = 1
    FULL = 2


@dataclass(frozen=True, eq=False)
class Unchanged:
    """Every layer's values for some inputs, and by how much they may be off."""

    values: list[Tensor]
    errors: list[Tensor]

    @staticmethod
    def of(network: Layered, x: Tensor) -> "Unchanged":
        """The values for inputs (rows, height, width, channels)."""
        return Unchanged(*network.values(x))


class Bounder:
    """Bounds margins of one network.

    `room` is how many numbers the coefficients of a batch of forms may have.
    """

    def __init__(self, network: Layered, room: int = 2**21) -> None:
        self.network, self.room = network, room
        self._straight = _straight(network)
        self._costs = [_cost(network, place) for place in range(len(network.layers))]
        self._lost = min(1e300, 1e-300 * math.prod(map(_growth, network.layers)))  # what underflow may have taken away
        self.size = sum(_size(network, place) for place in range(len(network.layers)))

    def margins(self, clean: Unchanged, rows: Tensor, labels: Tensor, region: Region, effort: Effort) -> Tensor:
        """A number for each task and class that own logit minus the class's is above, all over the region.

        `rows` says which clean input is a task's; a task's own class has infinity."""
        with torch.inference_mode():
            known, first = self._layers(clean, rows, labels, region, effort)
            logits, errors = (t[-1][rows][:, 0, 0] for t in (clean.values, clean.errors))
            classes = logits.shape[1]
            tasks = torch.arange(len(rows), device=rows.device).repeat_interleave(classes)
            other = torch.arange(classes, device=rows.device).repeat(len(rows))
            mine = labels[tasks]
            result = torch.full((len(rows), classes), torch.inf, dtype=torch.float64, device=rows.device)
            if first is not None:  # what planes have proved already needs no more
                result = self._total(logits, errors, tasks, mine, other, first.flatten()).view_as(result)
            result[torch.arange(len(rows), device=rows.device), labels] = torch.inf
            real = (other != mine) & ((result.flatten() <= 0) | (first is None))
            tasks, other, mine = tasks[real], other[real], mine[real]
            forms = torch.zeros(len(tasks), classes, dtype=torch.float64, device=rows.device)
            forms.scatter_(1, mine[:, None], 1.0).scatter_(1, other[:, None], -1.0)
            found = self._least(known, len(self.network.layers) - 1, forms[:, None, None], tasks, None)
            result[tasks, other] = self._total(logits, errors, tasks, mine, other, found)
        return result - self._lost

    @staticmethod
    def _total(logits: Tensor, errors: Tensor, tasks: Tensor, mine: Tensor, other: Tensor, found: Tensor) -> Tensor:
        """Margins, from those of the clean input and how far they can fall; rounded downward."""
        own, its = (logits[tasks, k] for k in (mine, other))
        slack = errors[tasks, mine] + errors[tasks, other] + 4 * UNIT * (own.abs() + its.abs() + found.abs())
        return own - its + found - slack

    def _layers(
        self, clean: Unchanged, rows: Tensor, labels: Tensor, region: Region, effort: Effort
    ) -> tuple[Known, Tensor | None]:
        """Lines and widths of all layers, and where planes over few free features say it, how far margins can fall."""
        known = Known(self.network, region)
        forward = None
        if isinstance(region, Groups) and (effort is Effort.PLANES or (effort is Effort.FULL and region.few)):
            forward = Forward(self.network.layers, region, rows)
        intervals: dict[int, Reach] = {}
        readers = self.network.readers
        for place, layer in enumerate(self.network.layers):
            if isinstance(layer, Input):
                intervals[place] = region.interval
            elif isinstance(layer, Relu | MaxPool):
                source = layer.sources[0]
                z, error = clean.values[source][rows], clean.errors[source][rows]
                exact = forward is not None and self._straight[source]  # a plane is what such a layer is
                if not exact and (self._straight[source] or effort is Effort.FULL):
                    wanted = self._wanted(place, layer, z, error, intervals[source])
                    intervals[source] = self._better(known, source, z, error, intervals[source], wanted, layer)
                self._bend(known, place, layer, z, error, intervals)
                if forward is not None:
                    forward.step(place, clean.values, clean.errors)
            elif forward is not None:
                forward.step(place, clean.values, clean.errors)
                intervals[place] = forward.ends(place)
            else:
                given = [intervals[source] for source in layer.sources]
                intervals[place] = layer.deviations(*given)
            lo, hi = intervals[place]
            bends = isinstance(layer, Input | Relu | MaxPool)
            known.widths[place] = (hi - lo).flatten(1).amax(1) if forward is None or bends else forward.width(place)
            for source in layer.sources:
                if max(readers[source]) <= place:
                    intervals.pop(source, None)
        return known, None if forward is None else forward.margins(labels)

    def _bend(
        self, known: Known, place: int, layer: Relu | MaxPool, z: Tensor, error: Tensor, intervals: dict[int, Reach]
    ) -> None:
        """The lines of a layer that bends, and how far its outputs can move."""
        given = intervals[layer.sources[0]]
        if isinstance(layer, Relu):
            lines, moved = relax.relu_lines(layer, z, error, given), relax.relu_deviations(layer, z, error, given)
        else:
            lines, moved = relax.pool_lines(layer, z, error, given), relax.pool_deviations(layer, z, error, given)
        known.lines[place] = relax.Straight(ringed(lines.packed), lines.slopes, lines.largest)
        intervals[place] = moved
        known.crops[place] = Crop.around((moved[1] > moved[0]).any(3))

    def _wanted(self, place: int, layer: Layer, z: Tensor, error: Tensor, interval: Reach) -> Tensor:
        """Of which neurons better intervals are worth their cost."""
        source = layer.sources[0]
        if self._straight[source] and not isinstance(self.network.layers[source], Input):
            return interval[1] > interval[0]
        if isinstance(layer, MaxPool):
            return relax.contested(layer, z, error, interval)
        assert isinstance(layer, Relu)
        wanted = relax.unstable(layer, z, error, interval)
        for reader in self.network.readers[place]:
            pool = self.network.layers[reader]
            if isinstance(pool, MaxPool):
                moved = relax.relu_deviations(layer, z, error, interval)
                wanted = wanted | relax.contested(pool, layer(z), error, moved)
        return wanted

    def _better(
        self, known: Known, place: int, z: Tensor, error: Tensor, interval: Reach, wanted: Tensor, layer: Layer
    ) -> Reach:
        """Intervals that are narrower where that is wanted: first the end nearer to the bend; the other if it bends."""
        if isinstance(self.network.layers[place], Input | Relu | MaxPool):
            return interval
        lo, hi = interval
        near = z >= 0
        lo = self._end(known, place, lo, wanted & near, 1.0)
        hi = self._end(known, place, hi, wanted & ~near, -1.0)
        if isinstance(layer, Relu) and not self._straight[place]:
            wanted = wanted & relax.unstable(layer, z, error, (lo, hi))
        lo = self._end(known, place, lo, wanted & ~near, 1.0)
        return lo, self._end(known, place, hi, wanted & near, -1.0)

    def _end(self, known: Known, place: int, end: Tensor, wanted: Tensor, sign: float) -> Tensor:
        """One end of the intervals of a layer, brought nearer to 0 for some neurons."""
        index = wanted.nonzero()
        if not len(index):
            return end
        tasks, y, x, c = index.unbind(1)
        shape = self.network.layers[place].shape
        origin = index[:, 1:3] if shape[0] * shape[1] > 1 else None
        found = self._least(known, place, (c, sign), tasks, origin)
        end = end.clone()
        now = end[tasks, y, x, c]
        # Coefficients that overflow give what is not a number: then the end stays.
        end[tasks, y, x, c] = torch.fmax(now, found) if sign > 0 else torch.fmin(now, -found)
        return end

    def _least(
        self, known: Known, place: int, a: "Tensor | tuple[Tensor, float]", tasks: Tensor, origin: Tensor | None
    ) -> Tensor:
        """The least values of forms, a part of them at a time; forms may be given as a channel and a sign."""
        step = max(1, self.room // self._costs[place])
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
            found.append(least(known, place, Forms(forms, tasks[part], None if origin is None else origin[part])))
        return torch.cat(found)


def _growth(layer: Layer) -> float:
    """How much larger than its inputs' a change of a layer's values can be, at least 1."""
    if isinstance(layer, Conv):
        return max(1.0, float(layer.magnitudes.sum((2, 3, 4)).amax()))
    if isinstance(layer, Scale):
        return max(1.0, float(layer.factor.abs().amax()))
    return 2.0 if isinstance(layer, Add) else 1.0


def _straight(network: Layered) -> list[bool]:
    """Which layers depend on the input without a bend between."""
    found: list[bool] = []
    for layer in network.layers:
        found.append(not isinstance(layer, Relu | MaxPool) and all(found[source] for source in layer.sources))
    return found


def _size(network: Layered, place: int) -> int:
    """Roughly how many numbers a layer holds for one task."""
    layer = network.layers[place]
    h, w, c = layer.shape
    if isinstance(layer, Conv):
        return (
            h * w * layer.kernel[0] * layer.kernel[1] * layer.weight.shape[4] * layer.weight.shape[0] // 4
            + 4 * h * w * c
        )
    if isinstance(layer, MaxPool):
        return h * w * c * 10 * layer.kernel[0] * layer.kernel[1]
    return 10 * h * w * c


def _cost(network: Layered, place: int) -> int:
    """The most numbers that a form of a layer takes on its way back."""
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
            most = max(
                most, h * w * layer.kernel[0] * layer.kernel[1] * inner * (3 if isinstance(layer, MaxPool) else 1)
            )
            h, w = (
                (n - 1) * s + (k - 1) * d + 1
                for n, s, k, d in zip((h, w), layer.stride, layer.kernel, layer.dilation, strict=True)
            )
        for source in layer.sources:
            shape = network.layers[source].shape
            before = sizes.get(source, (1, 1))
            sizes[source] = min(shape[0], max(before[0], h)), min(shape[1], max(before[1], w))
            if at != place and len(network.layers[at].sources) and shape[0] * shape[1] == 1:
                sizes[source] = (1, 1)
    return most
