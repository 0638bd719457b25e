"""Linear forms of a layer's deviations, many at once: coefficients in a window, 0 outside it.

A neuron of a convolution sees a window of the layers before it, so that is all that its coefficients need.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sigmazero.certifier.fused import kernels
from sigmazero.certifier.layers import Pair, overlay

Shape = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Forms:
    """Coefficients `a` (forms, h, w, channels), the task of each form, and where its window begins.

    Without an origin the window is the whole layer. It may reach beyond the layer, where there is nothing; `within`
    says that the coefficients there are 0 already.
    """

    a: Tensor
    tasks: Tensor
    origin: Tensor | None = None
    within: bool = False

    def __len__(self) -> int:
        """Number of forms."""
        return len(self.tasks)

    def take(self, x: Tensor, ring: bool = False) -> Tensor:
        """What the windows see of numbers (tasks, height, width, parts), which may have a ring of zeros already."""
        if self.origin is None:
            return x[self.tasks, 1:-1, 1:-1] if ring else x[self.tasks]
        x = x if ring else ringed(x)
        _, h, w, parts = x.shape
        y, z = self._places(h - 2, w - 2)
        index = ((self.tasks[:, None] * h + y + 1)[:, :, None] * w + (z + 1)[:, None]).view(-1)
        return x.reshape(-1, parts).index_select(0, index).view(len(self), *self.a.shape[1:3], parts)

    def _places(self, h: int, w: int) -> tuple[Tensor, Tensor]:
        """Rows and columns that the windows cover; whatever lies beyond the layer is taken for the ring around it."""
        assert self.origin is not None
        high, wide = self.a.shape[1:3]
        y = self.origin[:, :1] + torch.arange(high, device=self.origin.device)
        z = self.origin[:, 1:] + torch.arange(wide, device=self.origin.device)
        return y.clamp(-1, h), z.clamp(-1, w)

    def inside(self, shape: Shape) -> "Forms":
        """Without coefficients beyond the layer."""
        if self.origin is None or self.within:
            return self
        y, z = self._places(shape[0], shape[1])
        y, z = (y >= 0) & (y < shape[0]), (z >= 0) & (z < shape[1])
        return Forms(self.a * (y[:, :, None] & z[:, None])[..., None], self.tasks, self.origin)

    def cropped(self, box: "Crop") -> "Forms":
        """Without the coefficients outside each task's box, where that is smaller than the window."""
        if not box.pays(self.a.shape[1], self.a.shape[2]):
            return self
        origin = box.origin[self.tasks]
        return Forms(self.shifted(origin, box.size), self.tasks, origin)

    def shifted(self, origin: Tensor | None, size: Pair) -> Tensor:
        """The coefficients in windows of another size that begin elsewhere, at (0, 0) without an origin."""
        a, (n, _, _, c) = self.a, self.a.shape
        if on := kernels(a):
            begin = (0, 0) if self.origin is None else self.origin
            shifted: Tensor = on.lay(a[:, :, :, None, None], (1, 1), (1, 1), begin, origin, size)
            return shifted
        origin = a.new_zeros(n, 2, dtype=torch.long) if origin is None else origin
        for axis in (1, 2):
            start = 0 if self.origin is None else self.origin[:, axis - 1, None]
            index = torch.arange(size[axis - 1], device=a.device) + origin[:, axis - 1, None] - start
            good = (index >= 0) & (index < a.shape[axis])
            view = (n, -1, 1, 1) if axis == 1 else (n, 1, -1, 1)
            target = (n, size[0], a.shape[2], c) if axis == 1 else (n, size[0], size[1], c)
            a = a.gather(axis, index.clamp(0, a.shape[axis] - 1).view(view).expand(target)) * good.view(view)
        return a

    def settled(self, shape: Shape) -> "Forms":
        """Over the whole layer, where the window is as large as that."""
        if self.origin is None or (self.a.shape[1] < shape[0] or self.a.shape[2] < shape[1]):
            return self
        return self.whole(shape)

    def whole(self, shape: Shape) -> "Forms":
        """Over the whole layer."""
        if self.origin is None:
            return self
        return Forms(self.shifted(None, shape[:2]), self.tasks)

    def plus(self, other: "Forms", shape: Shape) -> "Forms":
        """The sum of two batches of forms of the same tasks."""
        if self.origin is None or other.origin is None:
            return Forms(self.whole(shape).a + other.whole(shape).a, self.tasks)
        apart = other.origin - self.origin
        y, z = (int(n) for n in apart[0])  # the same for all: windows grow alike
        if not bool((apart == apart[0]).all()):
            return Forms(self.whole(shape).a + other.whole(shape).a, self.tasks)
        sizes = [max(self.a.shape[k], other.a.shape[k] + d) - min(0, d) for k, d in ((1, y), (2, z))]
        a = self.a.new_zeros(len(self), *sizes, self.a.shape[3])
        for part, top, left in ((self.a, max(0, -y), max(0, -z)), (other.a, max(0, y), max(0, z))):
            a[:, top : top + part.shape[1], left : left + part.shape[2]] += part
        return Forms(a, self.tasks, torch.minimum(self.origin, other.origin))


@dataclass(frozen=True, eq=False)
class Windows:
    """Forms that are not summed yet: what windows that lie over each other hold.

    `parts` is (forms, h, w, height, width, channels), `begin` where a form's first window begins in the layer: one pair
    for all of them if the windows cover the whole layer.
    """

    parts: Tensor
    tasks: Tensor
    begin: Tensor | Pair
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)

    @staticmethod
    def of(forms: Forms) -> "Windows":
        """Forms as windows of one place each."""
        return Windows(forms.a[:, :, :, None, None], forms.tasks, (0, 0) if forms.origin is None else forms.origin)

    def frame(self, shape: Shape, box: "Crop | None" = None) -> tuple[Tensor | None, Pair]:
        """Origin and size of what is left to look at: the layer, if the windows cover it, or the box in it."""
        counts, kernel = self.parts.shape[1:3], self.parts.shape[3:5]
        spans = zip(counts, kernel, self.stride, self.dilation, strict=True)
        high, wide = ((n - 1) * s + (k - 1) * d + 1 for n, k, s, d in spans)
        origin, size = None if isinstance(self.begin, tuple) else self.begin, (high, wide)
        if origin is None or (high >= shape[0] and wide >= shape[1]):
            origin, size = None, shape[:2]
        return (box.origin[self.tasks], box.size) if box is not None and box.pays(*size) else (origin, size)

    def forms(self, shape: Shape) -> Forms:
        """Their sums as forms of a layer."""
        alone = self.parts.shape[1:3] == (1, 1) and self.dilation == (1, 1)  # then there is nothing to sum
        on = None if alone else kernels(self.parts)
        if on and on.reaches(self.parts.shape[3:5], self.stride, self.dilation):
            origin, size = self.frame(shape)
            return Forms(on.lay(self.parts, self.stride, self.dilation, self.begin, origin, size), self.tasks, origin)
        a = overlay(self.parts, self.stride, self.dilation)
        if isinstance(self.begin, Tensor):
            return Forms(a, self.tasks, self.begin).settled(shape)
        top, left = -self.begin[0], -self.begin[1]
        a = a[:, top : top + shape[0], left : left + shape[1]]
        if a.shape[1:3] != shape[:2]:  # the last windows end before the image does
            a = F.pad(a, (0, 0, 0, shape[1] - a.shape[2], 0, shape[0] - a.shape[1]))
        return Forms(a, self.tasks)


@dataclass(frozen=True, eq=False)
class Crop:
    """The part of a layer that moves at all: where it begins for each task, and a size that holds every task's."""

    origin: Tensor
    size: Pair

    def pays(self, high: int, wide: int) -> bool:
        """Whether it is that much smaller than a window that leaving the rest out is worth it."""
        return high * wide * 3 > self.size[0] * self.size[1] * 4

    @staticmethod
    def around(moves: Tensor) -> "Crop":
        """The smallest boxes around what is true (tasks, height, width)."""
        origins, sizes = [], []
        for axis in (1, 2):
            line = moves.any(3 - axis)
            length = line.shape[1]
            first = line.to(torch.int8).argmax(1)
            last = length - 1 - line.flip(1).to(torch.int8).argmax(1)
            size = max(1, int((last - first).max()) + 1) if bool(line.any()) else 1
            sizes.append(min(size, length))
            origins.append(first.clamp_max(length - sizes[-1]))
        return Crop(torch.stack(origins, 1), (sizes[0], sizes[1]))


def ringed(x: Tensor) -> Tensor:
    """With a ring of zeros around the layer, for windows that reach beyond it."""
    return F.pad(x, (0, 0, 1, 1, 1, 1))
