"""What the training scripts share: the loop, and a file that is the same each time."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn


def repeatable(seed: int) -> None:
    """Make training the same each time: one thread, seeded, with deterministic operations."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)


def one_cycle(
    model: nn.Module,
    rows: int,
    loss_of: Callable[[Tensor, int], Tensor],
    noise: torch.Generator,
    *,
    epochs: int,
    batch: int,
    rate: float,
    decay: float,
) -> None:
    """Train by AdamW on a one-cycle schedule.

    loss_of   the loss of a batch, for its rows and its number, which counts through all epochs
    """
    batches = -(-rows // batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=epochs * batches)
    for epoch in range(epochs):
        total = 0.0
        for number, some in enumerate(torch.split(torch.randperm(rows, generator=noise), batch)):
            loss = loss_of(some, epoch * batches + number)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
            total += loss.item()
        sys.stdout.write(f"epoch {epoch + 1:3d}  loss {total / batches:.3f}\n")
        sys.stdout.flush()
    model.eval().requires_grad_(False)


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of rows classified correctly."""
    with torch.no_grad():
        return float((model(x).argmax(1) == y).double().mean())


def save(model: nn.Module, path: Path, facts: dict[str, str]) -> None:
    """Save weights, and what is known of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Under one key, because several would be written in random order and the file would never be the same twice.
    save_file(model.state_dict(), path, metadata={"facts": json.dumps(facts)})
    sys.stdout.writelines(f"{name}: {value}\n" for name, value in facts.items())
    sys.stdout.write(f"wrote {path.name}, {path.stat().st_size / 1e3:.0f} kB\n")
