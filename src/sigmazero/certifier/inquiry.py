"""What is asked: inputs, classes, how far each feature may move, and what counts as one change."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from sigmazero.certifier.bounds import Bounder, Unchanged
from sigmazero.certifier.operations import image
from sigmazero.certifier.rounding import UNIT
from sigmazero.certifier.tasks import curve


@dataclass(frozen=True, eq=False)
class Inquiry:
    """Inputs of torch's shape with their classes, inside a box of the inputs' shape."""

    model: nn.Module
    bounder: Bounder
    x: Tensor
    y: Tensor
    lower: Tensor
    upper: Tensor
    pixels: bool = False

    @cached_property
    def points(self) -> Tensor:
        """The inputs as (rows, height, width, channels), in float64."""
        return image(self.x.double()).contiguous()

    @cached_property
    def ends(self) -> tuple[Tensor, Tensor]:
        """How far each feature may move, (rows, height, width, channels), around 0."""
        lo, hi = (image(t.double()).contiguous() - self.points for t in (self.lower, self.upper))
        return lo * (1 + 4 * UNIT), hi * (1 + 4 * UNIT)

    @cached_property
    def clean(self) -> Unchanged:
        """Every layer's values for the inputs."""
        with torch.inference_mode():
            return Unchanged.of(self.bounder.network, self.points)

    @cached_property
    def order(self) -> Tensor:
        """The sites along a curve."""
        h, w, c = self.points.shape[1:]
        return curve(h, w, 1 if self.pixels else c).to(self.x.device)

    @property
    def sites(self) -> int:
        """Number of things that can be changed."""
        return len(self.order)

    def outside(self, points: Tensor) -> Tensor:
        """Points (rows, height, width, channels) in torch's shape and the inputs' numbers."""
        return points.movedim(-1, 1).reshape(len(points), *self.x.shape[1:]).to(self.x.dtype)

    def fooled(self, points: Tensor, rows: Tensor) -> Tensor:
        """Whether the model itself takes points of torch's shape for another class than that of their rows."""
        with torch.no_grad():
            found: Tensor = self.model(points).argmax(1) != self.y[rows]
        return found
