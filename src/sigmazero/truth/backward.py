"""From forms of one layer back to forms of the input, and the least that they can be."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sigmazero.truth.forms import Crop, Forms, Shape
from sigmazero.truth.graph import Layered
from sigmazero.truth.layers import Add, Conv, Layer, MaxPool, Relu, Reshape, Scale, overlay
from sigmazero.truth.regions import Region
from sigmazero.truth.relax import Straight
from sigmazero.truth.rounding import TINY, gamma


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
    layers = known.network.layers
    waiting: dict[int, Forms] = {place: forms}
    constant = torch.zeros(len(forms), dtype=torch.float64, device=forms.a.device)
    for at in range(place, 0, -1):
        if at not in waiting:
            continue
        layer, here = layers[at], waiting.pop(at)
        size = here.a.abs().flatten(1).sum(1)
        width = known.widths[at]
        if isinstance(layer, Relu | MaxPool):
            here = here.cropped(known.crops[at])  # outside it all lines are 0
            here, offset = _straight(layer, known.lines[at], here)
            constant = constant + offset
            width = width + known.lines[at].largest + known.widths[layer.sources[0]]
        constant = constant - size * width[here.tasks] * (4 * gamma(_terms(layer)))
        for source, sent in zip(layer.sources, _sent(layer, here, layers), strict=True):
            shape = layers[source].shape
            waiting[source] = waiting[source].plus(sent, shape) if source in waiting else sent
            waiting[source] = waiting[source].settled(shape)
    found = constant + known.region.least(waiting[0]) if 0 in waiting else constant
    return found - 8 * gamma(len(layers)) * (found.abs() + constant.abs()) - TINY


def _terms(layer: Layer) -> int:
    """How many numbers are summed in one step back."""
    if isinstance(layer, Conv):
        return layer.terms
    if isinstance(layer, Relu | MaxPool):
        places = math.prod(layer.kernel) if isinstance(layer, MaxPool) else 1
        return math.prod(layer.shape) * places
    return 4


def _straight(layer: Relu | MaxPool, lines: Straight, forms: Forms) -> tuple[Forms, Tensor]:
    """Forms below those given, of the inputs of the layer, and their constants: a positive coefficient takes the lower
    line, a negative one the upper.
    """
    a, n, c = forms.a, lines.slopes, lines.channels
    packed = forms.take(lines.packed, ring=True)
    low, high, under, over = packed.tensor_split((n * c, 2 * n * c, 2 * n * c + c), 3)
    up = a > 0
    offset = (a * torch.where(up, under, over)).flatten(1).sum(1)
    if isinstance(layer, Relu):
        return Forms(a * torch.where(up, low, high), forms.tasks, forms.origin), offset
    shape = (*a.shape[:3], n, c)
    slopes = torch.where(up[:, :, :, None], low.reshape(shape), high.reshape(shape))
    parts = (a[:, :, :, None] * slopes).view(*a.shape[:3], *layer.kernel, c)
    return Forms(overlay(parts, layer.stride, layer.dilation), forms.tasks, forms.origin), offset


def _sent(layer: Layer, forms: Forms, layers: tuple[Layer, ...]) -> list[Forms]:
    """Forms of each source of a layer; those of a layer that bends are made already, but not moved."""
    if isinstance(layer, Add):
        return [forms, forms]
    if isinstance(layer, Relu):
        return [forms]
    shape = layers[layer.sources[0]].shape
    if isinstance(layer, Reshape):
        return [Forms(layer.back(forms.whole(layer.shape).a), forms.tasks)]
    if isinstance(layer, Scale):
        return [_scaled(layer, forms)]
    assert isinstance(layer, Conv | MaxPool)
    a = layer.back(forms.inside(layer.shape).a) if isinstance(layer, Conv) else forms.a
    return [_moved(a, forms, layer, shape)]


def _scaled(layer: Scale, forms: Forms) -> Forms:
    """Forms of what is scaled; the factor may be one for each position."""
    if forms.origin is None or layer.factor.ndim == 1:
        return Forms(forms.a * layer.factor, forms.tasks, forms.origin)
    factor = layer.factor.expand(1, *layer.shape)
    seen = Forms(forms.a, torch.zeros_like(forms.tasks), forms.origin).take(factor)
    return Forms(forms.a * seen, forms.tasks, forms.origin)


def _moved(a: Tensor, forms: Forms, layer: Conv | MaxPool, shape: Shape) -> Forms:
    """Forms in the coordinates of the layer before one with windows."""
    top, _, left, _ = layer.edge
    if forms.origin is not None:
        step = torch.tensor(layer.stride, device=a.device)
        return Forms(a, forms.tasks, forms.origin * step - torch.tensor((top, left), device=a.device))
    a = a[:, top : top + shape[0], left : left + shape[1]]
    if a.shape[1:3] != shape[:2]:  # the last windows end before the image does
        a = torch.nn.functional.pad(a, (0, 0, 0, shape[1] - a.shape[2], 0, shape[0] - a.shape[1]))
    return Forms(a, forms.tasks)
