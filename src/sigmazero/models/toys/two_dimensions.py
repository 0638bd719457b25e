"""A problem that can be drawn: two classes in the unit square, and one point that is to change sides.

Class 1 wins where a sum of four hills and hollows is positive. The numbers are written here, not trained.
"""

import torch
from torch import Tensor, nn

from sigmazero.data import Rows

CENTRES = ((0.85, 0.80), (0.90, 0.25), (0.15, 0.20), (0.15, 0.95))
WIDTHS = (0.30, 0.20, 0.30, 0.25)
HEIGHTS = (4.4, 2.6, -3.2, -1.8)
OFFSET = 0.2
START = (0.25, 0.30)


class Hills(nn.Module):
    """Logits −s and s of the height s at a point."""

    centres: Tensor
    widths: Tensor
    heights: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name, values in (("centres", CENTRES), ("widths", WIDTHS), ("heights", HEIGHTS)):
            self.register_buffer(name, torch.tensor(values))

    def forward(self, x: Tensor) -> Tensor:
        """Return the two logits."""
        squares = (x[:, None] - self.centres).square().sum(2)
        height = (self.heights * torch.exp(-squares / (2 * self.widths.square()))).sum(1) + OFFSET
        return torch.stack([-height, height], 1)


def build() -> nn.Module:
    """Return the network."""
    return Hills()


def rows() -> Rows:
    """Return the one point, of class 0."""
    return Rows(torch.tensor([START]), torch.tensor([0]), torch.tensor([0]), "two-dimensions")
