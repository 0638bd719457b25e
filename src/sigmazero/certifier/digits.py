"""Six small networks on scikit-learn's 8×8 digits, and 200 digits that none was trained on: the ground of the suite.

Weights, digits and answers come with the package; scripts/train_suite.py made the first and scripts/solve_suite.py the
last. The digits are those of the data set digits-8x8 whose row number is a multiple of 9.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

FOLDER = Path(__file__).with_name("known")
NAMES = ("mlp-standard", "mlp-adversarial", "mlp-sparse", "conv-standard", "conv-sparse", "conv-interval")
EVERY = 9


def build(name: str) -> nn.Sequential:
    """The layers of a network of the suite, not trained."""
    if name not in NAMES:
        raise ValueError(f"the suite has no network {name!r}; it has {', '.join(NAMES)}")
    if name.startswith("mlp"):
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 10)
        )
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def network(name: str) -> nn.Sequential:
    """A network of the suite."""
    model = build(name)
    with np.load(FOLDER / "networks.npz", allow_pickle=False) as file:
        model.load_state_dict({key: torch.from_numpy(file[f"{name}/{key}"]) for key in model.state_dict()})
    return model.eval().requires_grad_(False)


@dataclass(frozen=True)
class Digits:
    """The suite's inputs: images (200, 1, 8, 8) in [0, 1], their classes, and their rows in the data set."""

    images: Tensor
    labels: Tensor
    rows: Tensor


@cache
def digits() -> Digits:
    """The 200 digits."""
    with np.load(FOLDER / "digits.npz", allow_pickle=False) as file:
        images, labels = torch.from_numpy(file["images"]), torch.from_numpy(file["labels"])
    return Digits(images[:, None].float() / 16, labels.long(), torch.arange(len(labels)) * EVERY)
