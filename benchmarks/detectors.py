"""Train malware detectors on Drebin's apps: a network and a linear one with a hinge loss, each plain and adversarially.

    python -m benchmarks.detectors --data drebin181.npz

prints how well each does on the last third of the apps. Training is seeded and takes about a minute on a processor, so
nothing is stored. In adversarial training every app of malware in a batch gets the features that serve it most by
the gradient, `ADDED` of them: for a linear detector that is the worst case.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

TRAINED = 2 / 3
EPOCHS, BATCH, RATE, DECAY, ADDED = 30, 256, 2e-3, 1e-4, 10
DETECTORS = ("mlp", "mlp-adversarial", "svm", "svm-adversarial")


class Apps(NamedTuple):
    """Rows of binary features and their labels, 1 for malware."""

    x: Tensor
    y: Tensor

    def distinct(self) -> "Apps":
        """The first of all apps with the same features."""
        _, first = np.unique(self.x.numpy(), axis=0, return_index=True)
        rows = torch.from_numpy(np.sort(first))
        return Apps(self.x[rows], self.y[rows])


def drebin(path: Path) -> tuple[Apps, Apps]:
    """Apps to train on and to measure on; the file has them in random order."""
    with np.load(path) as file:
        bits = np.unpackbits(file["features"], axis=1)[:, : int(file["columns"])]
        x, y = torch.from_numpy(bits).float(), torch.from_numpy(file["labels"]).long()
    cut = int(len(x) * TRAINED)
    return Apps(x[:cut], y[:cut]), Apps(x[cut:], y[cut:])


def network(kind: str, features: int) -> nn.Module:
    """An untrained detector: logits of harmless and malware."""
    if kind == "svm":
        return nn.Linear(features, 2)
    return nn.Sequential(nn.Linear(features, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 2))


def added(model: nn.Module, batch: Apps, most: int) -> Tensor:
    """Malware with the `most` absent features that lower its score most, by the gradient at the app itself."""
    x = batch.x.clone().requires_grad_()
    logits = model(x)
    (slope,) = torch.autograd.grad((logits[:, 1] - logits[:, 0]).sum(), x)
    gain = torch.where(batch.x == 0, -slope, 0.0).clamp(min=0)
    best = gain.topk(most, 1)
    more = torch.zeros_like(gain).scatter(1, best.indices, (best.values > 0).float())
    return torch.where((batch.y == 1)[:, None], (batch.x + more).clamp(max=1), batch.x)


def trained(name: str, apps: Apps, seed: int = 0) -> nn.Module:
    """A detector of `DETECTORS`, the same each time on one machine."""
    kind, _, way = name.partition("-")
    torch.manual_seed(seed)
    model = network(kind, apps.x.shape[1])
    steps = EPOCHS * -(-len(apps.y) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(apps.y)).split(BATCH):
            batch = Apps(apps.x[rows], apps.y[rows])
            inputs = added(model, batch, ADDED) if way else batch.x
            logits = model(inputs)
            if kind == "svm":
                loss = F.relu(1 - (logits[:, 1] - logits[:, 0]) * (2 * batch.y - 1)).mean()
            else:
                loss = F.cross_entropy(logits, batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval().requires_grad_(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="drebin181.npz")
    train, test = drebin(parser.parse_args().data)
    for name in DETECTORS:
        found = trained(name, train)(test.x).argmax(1)
        caught, false = (float((found[test.y == label] == 1).float().mean()) for label in (1, 0))
        print(f"{name:16} detects {caught:.1%} of the malware, and takes {false:.1%} of the others for malware")


if __name__ == "__main__":
    main()
