"""Bound how far the model's own rounding can lower a margin, so that a proof also holds for the model as it computes.

Every layer is off by at most what one layer can lose, for values as large as they can be over a region. Between the
exact and the model's value a ReLU has a slope in [0, 1], known where both have one sign. So the error of a layer
reaches the margin times the margin's coefficients for that layer. These go back through the network as a middle and a
radius. A forward pass of growing errors says which signs are known.

This holds for sums in any order, but not for TF32, Winograd or FFT, which round differently.
"""

from dataclasses import replace

import torch
from torch import Tensor

from sigmazero.certifier.bounds import NetworkBounds, Strength
from sigmazero.certifier.crown import LinearForms, linear_back, pooled_back
from sigmazero.certifier.layers import UNIT, Conv, Input, Layer, MaxPool, Relu, Scale, Value
from sigmazero.certifier.regions import OneSitePerGroup

FLUSHED = 1e-37  # more than float32 loses in one operation where tiny numbers become 0
LARGEST = 1e37  # above this float32 may overflow


def model_error(
    bounds: NetworkBounds, clean: list[Value], region: OneSitePerGroup, labels: Tensor, strength: Strength
) -> Tensor:
    """Bound how far rounding can lower each margin in each region (tasks, classes); 0 for the label."""
    with torch.inference_mode():
        ranges = _Ranges(bounds, clean, region, labels, strength)
        found = torch.stack([ranges.margins(row, int(label)) for row, label in enumerate(labels.tolist())])
        if softmax := bounds.network.softmax:
            size = ranges.sizes[-1].amax((1, 2, 3))[:, None]
            found = found + bounds.network.unit * (64 + (16 * size if softmax == "log_softmax" else 0))
    return found.nan_to_num(torch.inf).scatter(1, labels[:, None], 0.0)


class _Ranges:
    """Of every layer: magnitudes, ends of the values, its own error, and the error of all layers so far."""

    def __init__(
        self, bounds: NetworkBounds, clean: list[Value], region: OneSitePerGroup, labels: Tensor, strength: Strength
    ) -> None:
        self.bounds, self.layers = bounds, bounds.network.layers
        self.sizes: list[Tensor] = []
        self.lows: list[Tensor] = []
        self.highs: list[Tensor] = []
        self.own: list[Tensor] = []
        self.errors: list[Tensor] = []
        intervals = bounds.intervals(clean, region, labels, strength)
        for layer, value, (lo, hi) in zip(self.layers, clean, intervals, strict=True):
            bounds.tick()
            z, off = value.of(region.rows)
            size = torch.maximum((z + lo).abs(), (z + hi).abs()) * (1 + 8 * UNIT) + 2 * off
            slack = 8 * UNIT * size + 2 * off
            self.sizes.append(size)
            self.lows.append(z + lo - slack)
            self.highs.append(z + hi + slack)
            own, error = (torch.zeros_like(z),) * 2 if isinstance(layer, Input) else self._errors(layer, size)
            self.own.append(torch.where(size < LARGEST, own, torch.inf))
            self.errors.append(torch.where(size < LARGEST, error, torch.inf))

    def _errors(self, layer: Layer, size: Tensor) -> tuple[Tensor, Tensor]:
        """Return how far a layer's values of this magnitude may be off by itself, and with the layers before."""
        assert not isinstance(layer, Input)
        unit = self.bounds.network.unit
        flushed = FLUSHED * (layer.terms if isinstance(layer, Conv) else 4) if unit > UNIT else 0.0
        before = [(self.sizes[source] + self.errors[source], self.errors[source]) for source in layer.sources]
        own = layer.error(size, unit, *(part for x, error in before for part in (x, torch.zeros_like(error)))) + flushed
        error = layer.error(size, unit, *(part for pair in before for part in pair)) + flushed
        if isinstance(layer, Relu) and layer.slope == 0:  # the model has 0 too where the input stays below 0
            source = layer.sources[0]
            dead = self.highs[source] + self.errors[source] <= 0
            return torch.zeros_like(own), torch.where(dead, 0.0, error)
        return own, error

    def margins(self, row: int, label: int) -> Tensor:
        """Return the bounds of one task (classes,)."""
        layers = self.layers
        classes = layers[-1].shape[2]
        tasks = torch.zeros(classes, dtype=torch.long, device=self.sizes[0].device)
        middle = -torch.eye(classes, dtype=torch.float64, device=tasks.device)
        middle[:, label] += 1
        start = LinearForms(middle[:, None, None], tasks)
        waiting = {len(layers) - 1: (start, replace(start, a=torch.zeros_like(start.a)))}
        total = torch.zeros(classes, dtype=torch.float64, device=tasks.device)
        for place in range(len(layers) - 1, 0, -1):
            if place not in waiting:
                continue
            self.bounds.tick()
            layer, (middles, radii) = layers[place], waiting.pop(place)
            total = total + ((middles.a.abs() + radii.a) * self.own[place][row]).sum((1, 2, 3))
            for source, sent in zip(layer.sources, self._back(layer, middles, radii, row), strict=True):
                shape = layers[source].shape
                if source in waiting:
                    sent = waiting[source][0].plus(sent[0], shape), waiting[source][1].plus(sent[1], shape)
                waiting[source] = sent
        return total * (1 + 1e-9)

    def _back(
        self, layer: Layer, middles: LinearForms, radii: LinearForms, row: int
    ) -> list[tuple[LinearForms, LinearForms]]:
        """Take middles and radii of coefficients back through a layer."""
        shape = self.layers[layer.sources[0]].shape
        if isinstance(layer, Relu):
            source = layer.sources[0]
            error = self.errors[source][row]
            on, off = self.lows[source][row] - error > 0, self.highs[source][row] + error <= 0
            low = torch.where(on, 1.0, torch.full_like(error, layer.slope))
            high = torch.where(off, low, 1.0)
            radius = radii.a * high + middles.a.abs() * ((high - low) / 2)
            return [(replace(middles, a=middles.a * ((low + high) / 2)), replace(radii, a=radius))]
        if isinstance(layer, MaxPool):  # any input of the window may be the largest
            most = replace(radii, a=middles.a.abs() + radii.a)
            spread = pooled_back(layer, most, shape)
            return [(replace(spread, a=torch.zeros_like(spread.a)), spread)]
        positive = layer
        if isinstance(layer, Conv):
            positive = replace(layer, weight=layer.magnitudes)
        elif isinstance(layer, Scale):
            positive = replace(layer, factor=layer.factor.abs())
        pairs = zip(linear_back(layer, middles, shape), linear_back(positive, radii, shape), strict=True)
        return list(pairs)
