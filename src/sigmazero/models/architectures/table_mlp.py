"""Small networks for tables: rows in the user's units, standardised inside."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from sigmazero.data import Standardize


class TableMLP(nn.Sequential):
    """Classifier of flat rows. Its first layer standardises; means and deviations are part of its state dict.

    >>> import torch
    >>> TableMLP(features=5, hidden=[8], classes=3)(torch.zeros(2, 5)).shape
    torch.Size([2, 3])
    """

    def __init__(self, features: int, hidden: Sequence[int] = (64, 64), classes: int = 2) -> None:
        widths = [features, *hidden]
        layers: list[nn.Module] = [Standardize(features)]
        for width, following in pairwise(widths):
            layers += [nn.Linear(width, following), nn.ReLU()]
        super().__init__(*layers, nn.Linear(widths[-1], classes))
