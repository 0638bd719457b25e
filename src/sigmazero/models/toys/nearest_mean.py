"""A second network for trials without downloads: the class of the nearest mean digit, which is a linear model.

The means are sums of whole numbers, divided once: every machine gets the same weights, hence the same cells.
"""

import torch
from torch import nn

from sigmazero import data


def build() -> nn.Module:
    """Make the classifier from the digits that `mnist-5k-heldout` leaves out, in milliseconds."""
    every, kept = data.load("mnist-5k"), data.load("mnist-5k-heldout")
    rest = torch.ones(len(every), dtype=torch.bool)
    rest[torch.isin(every.ids, kept.ids)] = False
    pixels = (every.images[rest].flatten(1).double() * 255).round().long()
    labels = every.labels[rest]
    sums = torch.zeros(10, pixels.shape[1], dtype=torch.int64).index_add_(0, labels, pixels)
    counts = torch.bincount(labels, minlength=10)
    # Scores, 2 x·μ − μ·μ, which order the classes as the distances to the means do; in whole numbers until the end.
    squares = (sums * sums).sum(1)
    linear = nn.Linear(pixels.shape[1], 10)
    with torch.no_grad():
        linear.weight.copy_(2 * sums.double() / (counts[:, None] * 255.0))
        linear.bias.copy_(-(squares.double() / (counts * counts * 65025.0)))
    return nn.Sequential(nn.Flatten(), linear)
