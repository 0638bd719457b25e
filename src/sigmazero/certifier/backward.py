"""From forms of one layer back to forms of the input, and the least that they can be."""

import functools
import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sigmazero.certifier.forms import Crop, Forms, Shape, Windows
from sigmazero.certifier.fused import kernels
from sigmazero.certifier.graph import Layered
from sigmazero.certifier.layers import Add, Conv, Layer, MaxPool, Pair, Relu, Reshape, Scale
from sigmazero.certifier.regions import Region
from sigmazero.certifier.relax import Straight
from sigmazero.certifier.rounding import TINY, gamma


@dataclass(eq=False)
class Known:
    """What is known of the layers so far: lines of those that bend (with a ring of zeros) and where they move at all,
    and for each task how wide the widest interval of a layer is, from which the error of rounding is computed.
    """

    network: Layered
    region: Region
    lines: dict[int, Straight] = field(default_factory=dict)
    widths: dict[int, Tensor] = field(default_factory=dict)
    crops: dict[int, Crop] = field(default_factory=dict)


def least(known: Known, place: int, forms: Forms) -> Tensor:
    """The least value of forms of a layer's deviations over each one's region; never more than that."""
    layers, readers = known.network.layers, known.network.readers
    waiting: dict[int, Forms | Windows] = {place: forms}
    constant = torch.zeros(len(forms), dtype=torch.float64, device=forms.a.device)
    for at in range(place, 0, -1):
        if at not in waiting:
            continue
        layer, here = layers[at], waiting.pop(at)
        width = known.widths[at]
        if isinstance(layer, Relu | MaxPool):
            here, size, offset = bent(layer, known.lines[at], known.crops[at], here)
            constant = constant + offset
            width = width + known.lines[at].largest + known.widths[layer.sources[0]]
            below: list[Forms | Windows] = [here]
        else:
            assert isinstance(here, Forms)
            size, below = _size(here.a), _sent(layer, here)
        constant = constant - size * width[here.tasks] * (4 * gamma(_terms(layer)))
        for source, sent in zip(layer.sources, below, strict=True):
            fits = isinstance(layers[source], Relu) and len(readers[source]) == 1
            waiting[source] = _met(waiting.get(source), sent, layers[source].shape, fits)
    found = constant
    if 0 in waiting:
        last = waiting[0]
        assert isinstance(last, Forms)
        found = constant + known.region.least(last)
    return found - 8 * gamma(len(layers)) * (found.abs() + constant.abs()) - TINY


def _met(there: Forms | Windows | None, sent: Forms | Windows, shape: Shape, fits: bool) -> Forms | Windows:
    """What waits at a layer, and what is sent to it. If it `fits`, a kernel sums windows as it takes them further."""
    if isinstance(sent, Windows):
        on = kernels(sent.parts) if fits else None
        if on and on.reaches(sent.parts.shape[3:5], sent.stride, sent.dilation):
            return sent
        sent = sent.forms(shape)
    assert not isinstance(there, Windows)
    return (sent if there is None else there.plus(sent, shape)).settled(shape)


def _size(a: Tensor) -> Tensor:
    """The sum of magnitudes of each form."""
    if not a.is_cuda:
        return a.abs().sum((1, 2, 3))
    size: Tensor = torch.linalg.vector_norm(a, 1, dim=(1, 2, 3))  # in one pass; slower than two on a CPU
    return size


def _terms(layer: Layer) -> int:
    """How many numbers are summed in one step back."""
    if isinstance(layer, Conv):
        return layer.terms
    if isinstance(layer, Relu | MaxPool):
        places = math.prod(layer.kernel) if isinstance(layer, MaxPool) else 1
        return math.prod(layer.shape) * places
    return 4


def bent(
    layer: Relu | MaxPool, lines: Straight, crop: Crop, given: Forms | Windows
) -> tuple[Forms | Windows, Tensor, Tensor]:
    """Forms below those given, of the inputs of a layer that bends, the sums of magnitudes, and constants.

    A positive coefficient takes the lower line, a negative one the upper. Outside the crop nothing moves and all lines
    are 0: whatever coefficients are there have no part in the value, nor has their rounding.
    """
    if isinstance(layer, Relu) and (on := kernels(lines.packed)):
        given = given if isinstance(given, Windows) else Windows.of(given)
        origin, size = given.frame(layer.shape, crop)
        seen = given.parts, given.stride, given.dilation, given.begin, origin, size
        a, magnitude, offset = on.bend(*seen, lines.packed, given.tasks)
        return Forms(a, given.tasks, origin, within=True), magnitude, offset
    assert isinstance(given, Forms)
    forms = given.cropped(crop)
    a, n, c = forms.a, lines.slopes, lines.channels
    packed = forms.take(lines.packed, ring=True)
    low, high, under, over = packed.tensor_split((n * c, 2 * n * c, 2 * n * c + c), 3)
    up = a > 0
    offset = (a * torch.where(up, under, over)).sum((1, 2, 3))
    if isinstance(layer, Relu):
        return Forms(a * torch.where(up, low, high), forms.tasks, forms.origin, within=True), _size(a), offset
    shape = (*a.shape[:3], n, c)
    slopes = torch.where(up[:, :, :, None], low.reshape(shape), high.reshape(shape))
    parts = (a[:, :, :, None] * slopes).view(*a.shape[:3], *layer.kernel, c)
    return _windows(parts, forms, layer), _size(a), offset


def _sent(layer: Layer, forms: Forms) -> list[Forms | Windows]:
    """Forms of each source of a layer that does not bend."""
    if isinstance(layer, Add):
        return [forms, forms]
    if isinstance(layer, Reshape):
        return [Forms(layer.back(forms.whole(layer.shape).a), forms.tasks)]
    if isinstance(layer, Scale):
        return [_scaled(layer, forms)]
    assert isinstance(layer, Conv)
    return [_windows(layer.back(forms.inside(layer.shape).a), forms, layer)]


def _scaled(layer: Scale, forms: Forms) -> Forms:
    """Forms of what is scaled; the factor may be one for each position."""
    if forms.origin is None or layer.factor.ndim == 1:
        return Forms(forms.a * layer.factor, forms.tasks, forms.origin)
    factor = layer.factor.expand(1, *layer.shape)
    seen = Forms(forms.a, torch.zeros_like(forms.tasks), forms.origin).take(factor)
    return Forms(forms.a * seen, forms.tasks, forms.origin)


@functools.cache
def _pair(pair: Pair, device: torch.device) -> Tensor:
    """Two numbers on a device; copies to one would wait for all that runs there."""
    return torch.tensor(pair, device=device)


def _windows(parts: Tensor, forms: Forms, layer: Conv | MaxPool) -> Windows:
    """Windows in the coordinates of the layer before."""
    top, _, left, _ = layer.edge
    begin: Tensor | Pair = (-top, -left)
    if forms.origin is not None:
        begin = forms.origin * _pair(layer.stride, parts.device) - _pair((top, left), parts.device)
    return Windows(parts, forms.tasks, begin, layer.stride, layer.dilation)
