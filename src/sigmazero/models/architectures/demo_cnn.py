"""The bundled demo network: about 0.1 M weights, small enough to travel inside the package."""

from __future__ import annotations

from torch import nn


class DemoCNN(nn.Sequential):
    """Digit classifier from 1×28×28 images in [0, 1] to 10 logits, with no normalisation and no dropout.

    >>> import torch
    >>> DemoCNN()(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 48, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(48 * 5 * 5, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )


def build() -> DemoCNN:
    """A demo network with random weights, ready for `load_state_dict`."""
    return DemoCNN()
