"""Linear forms of a layer's deviations, many at once: coefficients in a window, 0 outside it.

A neuron of a convolution sees a window of the layers before it, so that is all that its coefficients need.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Shape = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Forms:
    """Coefficients `a` (forms, h, w, channels), the task of each form, and where its window begins.

    Without an origin the window is the whole layer. It may reach beyond the layer, where there is nothing.
    """

    a: Tensor
    tasks: Tensor
    origin: Tensor | None = None

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
        if self.origin is None:
            return self
        y, z = self._places(shape[0], shape[1])
        y, z = (y >= 0) & (y < shape[0]), (z >= 0) & (z < shape[1])
        return Forms(self.a * (y[:, :, None] & z[:, None])[..., None], self.tasks, self.origin)

    def settled(self, shape: Shape) -> "Forms":
        """Over the whole layer, where the window is as large as that."""
        if self.origin is None or (self.a.shape[1] < shape[0] or self.a.shape[2] < shape[1]):
            return self
        return self.whole(shape)

    def whole(self, shape: Shape) -> "Forms":
        """Over the whole layer."""
        if self.origin is None:
            return self
        a, (n, high, wide, c) = self.a, self.a.shape
        for axis, size, given in ((1, shape[0], high), (2, shape[1], wide)):
            index = torch.arange(size, device=a.device) - self.origin[:, axis - 1, None]
            good = (index >= 0) & (index < given)
            places = index.clamp(0, given - 1)
            view = (n, size, 1, 1) if axis == 1 else (n, 1, size, 1)
            target = (n, size, a.shape[2], c) if axis == 1 else (n, a.shape[1], size, c)
            a = a.gather(axis, places.view(view).expand(target)) * good.view(view)
        return Forms(a, self.tasks)

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


def ringed(x: Tensor) -> Tensor:
    """With a ring of zeros around the layer, for windows that reach beyond it."""
    return F.pad(x, (0, 0, 1, 1, 1, 1))
