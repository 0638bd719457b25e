"""Train the six networks of the exact suite on scikit-learn's digits, on one thread, seeded: about two minutes.

    python -m scripts.train_suite

Trained on the rows of digits-8x8 whose number is no multiple of 9; the other 200 are the suite's. Standard training;
adversarial training in an l2 ball; sparse adversarial training, in which the feature with the steepest slope goes to an
end of the box, one after the other; and training on interval bounds of what a few changes can do.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scripts.training import accuracy, one_cycle, repeatable
from torch import Tensor, nn
from torch.nn import functional as F

from sigmazero import data
from sigmazero.certifier.suite import EVERY, FOLDER, NAMES, build

RADIUS = 1.0  # of the l2 ball
SPARSE = 6  # features that sparse training changes
SHARE = 0.1  # weight of the loss on interval bounds in the end
BOUNDED = 1  # features whose change the interval bounds allow for
EPOCHS = {"standard": 40, "adversarial": 60, "sparse": 60, "interval": 60}


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images and labels, the suite's images and labels."""
    rows = data.load("digits-8x8")
    ours = torch.arange(len(rows)) % EVERY == 0
    return rows.images[~ours], rows.labels[~ours], rows.images[ours], rows.labels[ours]


def slope(model: nn.Module, points: Tensor, labels: Tensor) -> Tensor:
    """The gradient of the loss with respect to the inputs."""
    points = points.detach().requires_grad_()
    return torch.autograd.grad(F.cross_entropy(model(points), labels, reduction="sum"), points)[0]


def dense(model: nn.Module, images: Tensor, labels: Tensor, radius: float) -> Tensor:
    """Seven steps up the slope, inside the l2 ball and the unit box."""
    points, shape = images, (-1, 1, 1, 1)
    for _ in range(7):
        gradient = slope(model, points, labels)
        unit = gradient / gradient.flatten(1).norm(dim=1).clamp_min(1e-12).view(shape)
        offset = points + radius / 3 * unit - images
        shrink = (radius / offset.flatten(1).norm(dim=1).clamp_min(1e-12)).clamp_max(1).view(shape)
        points = (images + offset * shrink).clamp(0, 1)
    return points


def sparse(model: nn.Module, images: Tensor, labels: Tensor, noise: torch.Generator) -> Tensor:
    """One feature after the other to the end that raises the loss the most, by the slope; 1 to SPARSE of them."""
    points, changed = images.clone(), torch.zeros_like(images, dtype=torch.bool)
    counts = torch.randint(1, SPARSE + 1, (len(images), 1), generator=noise)
    for k in range(SPARSE):
        gradient = slope(model, points, labels)
        goal = (gradient > 0).float()
        gain = torch.where(changed, -torch.inf, gradient * (goal - points)).flatten(1)
        best = F.one_hot(gain.argmax(1), 64).bool() & (counts > k)
        best = best.view_as(points)
        points, changed = torch.where(best, goal, points), changed | best
    return points


def interval_logits(model: nn.Sequential, images: Tensor, labels: Tensor, changes: int) -> Tensor:
    """The worst logits with so many changes: the first layer's by its best features, the others' by intervals."""
    first, *others = model
    assert isinstance(first, nn.Conv2d)
    units = torch.eye(64).view(64, *images.shape[1:])
    slopes = F.conv2d(units, first.weight, None, first.stride, first.padding).flatten(1).T
    x, answer = images.flatten(1)[:, None], first(images)
    down, up = (torch.maximum(each * x, each * (x - 1)).topk(changes, 2).values.sum(2) for each in (slopes, -slopes))
    low, high = answer - down.view_as(answer), answer + up.view_as(answer)
    for layer in others:
        if isinstance(layer, nn.Linear | nn.Conv2d):
            centre, half = layer((low + high) / 2), (high - low) / 2
            if isinstance(layer, nn.Linear):
                spread = F.linear(half, layer.weight.abs())
            else:
                spread = F.conv2d(half, layer.weight.abs(), None, layer.stride, layer.padding)
            low, high = centre - spread, centre + spread
        else:
            low, high = layer(low), layer(high)
    return torch.where(F.one_hot(labels, 10).bool(), low, high)


def loss_of(
    kind: str, model: nn.Sequential, images: Tensor, labels: Tensor, done: float, noise: torch.Generator
) -> Tensor:
    """The loss of one batch; what is hard grows over the first half."""
    grown = min(1.0, 2 * done)
    clean = F.cross_entropy(model(images), labels)
    if kind == "standard":
        return clean
    if kind == "adversarial":
        hard = dense(model, images, labels, RADIUS * grown)
        return F.cross_entropy(model(hard), labels)
    if kind == "sparse":
        return 0.3 * clean + F.cross_entropy(model(sparse(model, images, labels, noise)), labels)
    worst = F.cross_entropy(interval_logits(model, images, labels, BOUNDED), labels)
    return (1 - grown * SHARE) * clean + grown * SHARE * worst


def train(name: str, images: Tensor, labels: Tensor, seed: int) -> nn.Sequential:
    """Train a network of the suite as the second part of its name says."""
    repeatable(seed)
    kind = name.partition("-")[2]
    model, noise, epochs = build(name), torch.Generator().manual_seed(seed), EPOCHS[kind]
    total = epochs * -(-len(labels) // 64)

    def loss(rows: Tensor, number: int) -> Tensor:
        return loss_of(kind, model, images[rows], labels[rows], number / total, noise)

    one_cycle(model, len(labels), loss, noise, epochs=epochs, batch=64, rate=5e-3, decay=1e-2)
    return model


def main() -> None:
    """Train, measure, save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=FOLDER / "networks.npz")
    options = parser.parse_args()
    images, labels, ours, classes = digits()
    saved: dict[str, Any] = {}
    for name in NAMES:
        model = train(name, images, labels, options.seed)
        sys.stdout.write(f"{name}: {accuracy(model, ours, classes):.3f} of the suite's digits right\n")
        saved |= {f"{name}/{key}": value.numpy() for key, value in model.state_dict().items()}
    np.savez_compressed(options.out, **saved)


if __name__ == "__main__":
    main()
