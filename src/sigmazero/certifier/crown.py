"""CROWN's backward pass: take linear forms of one layer back to the input, and bound them over a region.

Many forms go back at once. A neuron of a convolution sees a window of the layers before it, so only the coefficients
of that window are stored; the others are 0.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from sigmazero.certifier.graph import Network
from sigmazero.certifier.layers import Add, Conv, Layer, MaxPool, Pair, Relu, Reshape, Scale, gamma, overlay, summed
from sigmazero.certifier.regions import OneSitePerGroup
from sigmazero.certifier.relaxation import Relaxation

Shape = tuple[int, int, int]
TINY = 1e-200  # more than underflow can take away


@dataclass(frozen=True, eq=False)
class LinearForms:
    """Coefficients `a` (forms, h, w, channels), the task of each form, and the origin of its window.

    Without an origin the window is the whole layer. A window may reach beyond the layer; `within` says that the
    coefficients there are 0 already.
    """

    a: Tensor
    tasks: Tensor
    origin: Tensor | None = None
    within: bool = False

    def __len__(self) -> int:
        """Return the number of forms."""
        return len(self.tasks)

    def take(self, x: Tensor) -> Tensor:
        """Return the part of x (tasks, height, width, parts) in each window; x has a ring of zeros."""
        if self.origin is None:
            return x[self.tasks, 1:-1, 1:-1]
        _, h, w, parts = x.shape
        y, z = self._places(h - 2, w - 2)
        index = ((self.tasks[:, None] * h + y + 1)[:, :, None] * w + (z + 1)[:, None]).view(-1)
        return x.reshape(-1, parts).index_select(0, index).view(len(self), *self.a.shape[1:3], parts)

    def _places(self, h: int, w: int) -> tuple[Tensor, Tensor]:
        """Return the rows and columns of the windows; places beyond the layer are in the ring around it."""
        assert self.origin is not None
        high, wide = self.a.shape[1:3]
        y = self.origin[:, :1] + torch.arange(high, device=self.origin.device)
        z = self.origin[:, 1:] + torch.arange(wide, device=self.origin.device)
        return y.clamp(-1, h), z.clamp(-1, w)

    def inside(self, shape: Shape) -> "LinearForms":
        """Return the forms with coefficients beyond the layer set to 0."""
        if self.origin is None or self.within:
            return self
        y, z = self._places(shape[0], shape[1])
        y, z = (y >= 0) & (y < shape[0]), (z >= 0) & (z < shape[1])
        return LinearForms(self.a * (y[:, :, None] & z[:, None])[..., None], self.tasks, self.origin)

    def cropped(self, box: "MovingBox") -> "LinearForms":
        """Return the forms cut to each task's box, if that is much smaller than the window."""
        if not box.pays(self.a.shape[1], self.a.shape[2]):
            return self
        origin = box.origin[self.tasks]
        return LinearForms(self.shifted(origin, box.size), self.tasks, origin)

    def shifted(self, origin: Tensor | None, size: Pair) -> Tensor:
        """Return the coefficients in windows of another size and origin; without an origin they begin at (0, 0)."""
        a, (n, _, _, c) = self.a, self.a.shape
        origin = a.new_zeros(n, 2, dtype=torch.long) if origin is None else origin
        for axis in (1, 2):
            start = 0 if self.origin is None else self.origin[:, axis - 1, None]
            index = torch.arange(size[axis - 1], device=a.device) + origin[:, axis - 1, None] - start
            good = (index >= 0) & (index < a.shape[axis])
            view = (n, -1, 1, 1) if axis == 1 else (n, 1, -1, 1)
            target = (n, size[0], a.shape[2], c) if axis == 1 else (n, size[0], size[1], c)
            a = a.gather(axis, index.clamp(0, a.shape[axis] - 1).view(view).expand(target)) * good.view(view)
        return a

    def settled(self, shape: Shape) -> "LinearForms":
        """Return the forms over the whole layer, if their windows are as large as that."""
        large = self.a.shape[1] >= shape[0] and self.a.shape[2] >= shape[1]
        return self.whole(shape) if large else self

    def whole(self, shape: Shape) -> "LinearForms":
        """Return the forms over the whole layer."""
        if self.origin is None:
            return self
        return LinearForms(self.shifted(None, shape[:2]), self.tasks)

    def plus(self, other: "LinearForms", shape: Shape) -> "LinearForms":
        """Return the sums of two batches of forms of the same tasks."""
        if self.origin is None or other.origin is None:
            return LinearForms(self.whole(shape).a + other.whole(shape).a, self.tasks)
        apart = other.origin - self.origin
        if not bool((apart == apart[0]).all()):
            return LinearForms(self.whole(shape).a + other.whole(shape).a, self.tasks)
        y, z = (int(n) for n in apart[0])
        sizes = [max(self.a.shape[k], other.a.shape[k] + d) - min(0, d) for k, d in ((1, y), (2, z))]
        a = self.a.new_zeros(len(self), *sizes, self.a.shape[3])
        for part, top, left in ((self.a, max(0, -y), max(0, -z)), (other.a, max(0, y), max(0, z))):
            a[:, top : top + part.shape[1], left : left + part.shape[2]] += part
        return LinearForms(a, self.tasks, torch.minimum(self.origin, other.origin))


@dataclass(frozen=True, eq=False)
class MovingBox:
    """The part of a layer that can move: its origin for each task, and a size that holds every task's part."""

    origin: Tensor
    size: Pair

    def pays(self, high: int, wide: int) -> bool:
        """Return whether the box is so much smaller than a window that cutting to it saves time."""
        return high * wide * 3 > self.size[0] * self.size[1] * 4

    @staticmethod
    def around(moves: Tensor) -> "MovingBox":
        """Return the smallest boxes that hold all true places (tasks, height, width)."""
        origins, sizes = [], []
        for axis in (1, 2):
            line = moves.any(3 - axis)
            length = line.shape[1]
            first = line.to(torch.int8).argmax(1)
            last = length - 1 - line.flip(1).to(torch.int8).argmax(1)
            size = max(1, int((last - first).max()) + 1) if bool(line.any()) else 1
            sizes.append(min(size, length))
            origins.append(first.clamp_max(length - sizes[-1]))
        return MovingBox(torch.stack(origins, 1), (sizes[0], sizes[1]))


def ringed(x: Tensor) -> Tensor:
    """Add a ring of zeros around each layer, for windows that reach beyond it."""
    return F.pad(x, (0, 0, 1, 1, 1, 1))


@dataclass(eq=False)
class Known:
    """The bounds of the layers so far.

    lines    relaxations of the layers that are not linear, with a ring of zeros
    widths   the widest interval of each layer (tasks,), for the rounding error
    boxes    where layers that are not linear can move
    tick     called before every step; it may raise an error to stop
    """

    network: Network
    region: OneSitePerGroup
    tick: Callable[[], None] = lambda: None
    lines: dict[int, Relaxation] = field(default_factory=dict)
    widths: dict[int, Tensor] = field(default_factory=dict)
    boxes: dict[int, MovingBox] = field(default_factory=dict)


def least(known: Known, place: int, forms: LinearForms) -> Tensor:
    """Return a lower bound of each form of a layer's deviations over its task's region."""
    layers = known.network.layers
    waiting: dict[int, LinearForms] = {place: forms}
    constant = torch.zeros(len(forms), dtype=torch.float64, device=forms.a.device)
    for at in range(place, 0, -1):
        if at not in waiting:
            continue
        known.tick()
        layer, here = layers[at], waiting.pop(at)
        width = known.widths[at]
        if isinstance(layer, Relu | MaxPool):
            shape = layers[layer.sources[0]].shape
            before, size, offset = relaxed(layer, known.lines[at], known.boxes[at], here, shape)
            constant = constant + offset
            width = width + known.lines[at].largest + known.widths[layer.sources[0]]
            below = [before]
        else:
            size, below = _size(here.a), linear_back(layer, here, layers[layer.sources[0]].shape)
        constant = constant - size * width[here.tasks] * (4 * gamma(_terms(layer)))
        for source, sent in zip(layer.sources, below, strict=True):
            shape = layers[source].shape
            waiting[source] = (waiting[source].plus(sent, shape) if source in waiting else sent).settled(shape)
    found = constant + known.region.least(waiting[0]) if 0 in waiting else constant
    return found - 8 * gamma(len(layers)) * (found.abs() + constant.abs()) - TINY


def _size(a: Tensor) -> Tensor:
    """Return the sum of magnitudes of each form."""
    if not a.is_cuda:
        return a.abs().sum((1, 2, 3))
    size: Tensor = torch.linalg.vector_norm(a, 1, dim=(1, 2, 3))  # in one pass; slower than two on a CPU
    return size


def _terms(layer: Layer) -> int:
    """Return how many numbers are summed in one step back."""
    if isinstance(layer, Conv):
        return layer.terms
    if isinstance(layer, Relu | MaxPool):
        places = math.prod(layer.kernel) if isinstance(layer, MaxPool) else 1
        return math.prod(layer.shape) * places
    return 4


def relaxed(
    layer: Relu | MaxPool, lines: Relaxation, box: MovingBox, forms: LinearForms, shape: Shape
) -> tuple[LinearForms, Tensor, Tensor]:
    """Return lower forms of the layer's inputs, the sums of their magnitudes, and their constants.

    A positive coefficient takes the lower line, a negative one the upper line. Outside the box nothing moves and all
    lines are 0, so coefficients there do not matter.
    """
    forms = forms.cropped(box)
    a, n, c = forms.a, lines.slopes, lines.channels
    packed = forms.take(lines.packed)
    low, high, under, over = packed.tensor_split((n * c, 2 * n * c, 2 * n * c + c), 3)
    up = a > 0
    offset = (a * torch.where(up, under, over)).sum((1, 2, 3))
    if isinstance(layer, Relu):
        return LinearForms(a * torch.where(up, low, high), forms.tasks, forms.origin, within=True), _size(a), offset
    each = (*a.shape[:3], n, c)
    slopes = torch.where(up[:, :, :, None], low.reshape(each), high.reshape(each))
    parts = (a[:, :, :, None] * slopes).view(*a.shape[:3], *layer.kernel, c)
    return _summed(parts, forms, layer, shape), _size(a), offset


def pooled_back(layer: MaxPool, forms: LinearForms, shape: Shape) -> LinearForms:
    """Return forms of a max pool's inputs, with each coefficient at every place of its window."""
    parts = forms.a[:, :, :, None, None].expand(-1, -1, -1, *layer.kernel, -1)
    return _summed(parts, forms, layer, shape)


def linear_back(layer: Layer, forms: LinearForms, shape: Shape) -> list[LinearForms]:
    """Return the forms of each source of a linear layer."""
    if isinstance(layer, Add):
        return [forms, forms]
    if isinstance(layer, Reshape):
        return [LinearForms(layer.back(forms.whole(layer.shape).a), forms.tasks)]
    if isinstance(layer, Scale):
        return [_scaled(layer, forms)]
    assert isinstance(layer, Conv)
    return [_summed(layer.back(forms.inside(layer.shape).a), forms, layer, shape)]


def _scaled(layer: Scale, forms: LinearForms) -> LinearForms:
    """Return the forms before a scale, whose factor may differ between positions."""
    if forms.origin is None or layer.factor.ndim == 1:
        return LinearForms(forms.a * layer.factor, forms.tasks, forms.origin)
    factor = ringed(layer.factor.expand(1, *layer.shape))
    seen = LinearForms(forms.a, torch.zeros_like(forms.tasks), forms.origin).take(factor)
    return LinearForms(forms.a * seen, forms.tasks, forms.origin)


def _summed(parts: Tensor, forms: LinearForms, layer: Conv | MaxPool, shape: Shape) -> LinearForms:
    """Sum overlapping windows (forms, h, w, height, width, channels) in the layer before, which has this shape."""
    if forms.origin is None:
        return LinearForms(summed(parts, layer, shape[:2]), forms.tasks)
    # Column by column: a tensor of these numbers would be copied to the device each time, which waits for all its work.
    begin = [forms.origin[:, axis] * layer.stride[axis] - layer.edge[2 * axis] for axis in (0, 1)]
    return LinearForms(overlay(parts, layer), forms.tasks, torch.stack(begin, 1)).settled(shape)
