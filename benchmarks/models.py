"""The networks that benchmarks attack: small digits with planted defences, malware detectors, a reader of few pixels.

Training is seeded. It takes seconds to minutes on a processor, so nothing is stored, but for the network that is
trained against sparse changes: `python -m benchmarks.models --out build/sparse.pt`.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sigmazero import data
from sigmazero.certifier.smoothing import blanked
from sigmazero.core import noise

TRIM = 8  # products that a truncating neuron throws away at each end
SPARSE = "l0-trained"
VOTES, KEEP = 25, 0.4  # ablated copies, and the share of the inputs that each of them sees
K, STEPS = 20, 10  # pixels that change in sparse training, and steps in which they are looked for
STEP, WEIGHT = 0.25, 6.0  # of Sparse-PGD, and of the changed answers beside the clean ones
APPS = 2 / 3  # of Drebin that detectors are trained on
EPOCHS, BATCH, RATE, DECAY, ADDED = 30, 256, 2e-3, 1e-4, 10  # of a detector; features added in adversarial training
DETECTORS = ("mlp", "mlp-adversarial", "svm", "svm-adversarial")


def images() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs and labels to train with, and others to attack; every fifth image is of the latter."""
    rows = data.load("mnist-5k")
    x, held = F.avg_pool2d(rows.images, 2), torch.arange(len(rows)) % 5 == 0
    order = torch.randperm(int(held.sum()), generator=torch.Generator().manual_seed(0))
    return x[~held], rows.labels[~held], x[held][order], rows.labels[held][order]


def plain(hidden: int = 64) -> nn.Sequential:
    """A network without a defence."""
    return nn.Sequential(nn.Flatten(), nn.Linear(196, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def guarded(width: int = 16) -> nn.Sequential:
    """The network that is trained against sparse changes."""
    return nn.Sequential(
        *(nn.Conv2d(1, width, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(2 * width, 2 * width, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(32 * width, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


def grey(x: Tensor) -> Tensor:
    """The same images between a quarter and three quarters: as in photos, values have room on both sides."""
    return 0.25 + 0.5 * x


class Rounded(nn.Module):
    """Rounds its inputs to black and white: no gradient comes through."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x.round())
        return out


class Noisy(nn.Module):
    """Adds noise to its inputs, other noise each time."""

    def __init__(self, net: nn.Module, size: float = 0.25) -> None:
        super().__init__()
        self.net, self.size = net, size

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x + self.size * torch.randn_like(x))
        return out


class Truncated(nn.Module):
    """Its first neurons throw away their largest and smallest products: few inputs cannot sway a sum."""

    def __init__(self, hidden: int = 24) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(196, hidden), nn.Linear(hidden, 10)

    def forward(self, x: Tensor) -> Tensor:
        products = x.flatten(1)[:, None] * self.first.weight
        kept = products.sort(2).values[..., TRIM:-TRIM].sum(2)
        out: Tensor = self.last(F.relu(kept + self.first.bias))
        return out


class Dropped(nn.Module):
    """Takes inputs near the ends of the box for background, so corner values only erase."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(torch.where((x > 0.1) & (x < 0.9), x, 0.0))
        return out


class Ablated(nn.Module):
    """Counts the votes of one network on copies of which most is masked: few inputs are seen by few copies."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.masks: Tensor
        self.register_buffer("masks", torch.rand(VOTES, 196, generator=torch.Generator().manual_seed(0)) < KEEP)

    def forward(self, x: Tensor) -> Tensor:
        copies = torch.where(self.masks, x.flatten(1)[:, None], 0.5)
        votes = self.net(copies.flatten(0, 1)).view(len(x), VOTES, -1).argmax(2)
        return F.one_hot(votes, 10).sum(1).to(x.dtype)


def fit(net: nn.Module, x: Tensor, y: Tensor, change: Callable[[Tensor], Tensor], epochs: int = 20) -> nn.Module:
    """Train a network on inputs that are changed first."""
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(128):
            optimizer.zero_grad()
            F.cross_entropy(net(change(x[rows])), y[rows]).backward()
            optimizer.step()
    return net.eval().requires_grad_(False)


def attacked(net: nn.Module, x: Tensor, loss: Callable[[Tensor], Tensor], k: int, steps: int = STEPS) -> Tensor:
    """Points of the largest loss met: values move by signs, scores of the pixels by the length of their gradient."""
    scores, values = torch.randn(len(x), x[0].numel()), torch.rand_like(x)
    everywhere = bool(torch.rand(()) < 0.5)  # whether values move at pixels that are not chosen, too
    best, most = x.clone(), torch.full((len(x),), -torch.inf)
    for _ in range(steps + 1):
        share = scores.sigmoid()
        chosen = torch.zeros_like(share).scatter(1, share.topk(k).indices, 1.0).view_as(x)
        point = (x + chosen * (values - x)).requires_grad_()
        found = loss(net(point))
        (slope,) = torch.autograd.grad(found.sum(), point)
        better = found.detach() > most
        most = torch.where(better, found.detach(), most)
        best = torch.where(better.view(-1, 1, 1, 1), point.detach(), best)
        pull = (slope * (values - x)).flatten(1) * share * (1 - share)
        values = (values + STEP * (slope * (share.view_as(x) if everywhere else chosen)).sign()).clamp(0, 1)
        scores = scores + STEP * scores.shape[1] ** 0.5 * F.normalize(pull, dim=1)
    return best


def shift(net: nn.Module, x: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the distance of the answers from those to the clean inputs."""
    with torch.no_grad():
        clean = net(x).softmax(1)
    return lambda logits: F.kl_div(logits.log_softmax(1), clean, reduction="none").sum(1)


def trained_sparse(epochs: int = 20) -> nn.Module:
    """Train a network against sparse changes, as in sTRADES (https://arxiv.org/abs/2405.05075).

    A batch is attacked by a few steps of Sparse-PGD, which look for answers far from the clean ones; the loss asks for
    right clean answers that the changes do not move. The number of pixels that may change grows to K over the first
    epochs.
    """
    x, y, held_x, held_y = images()
    x, held_x = grey(x), grey(held_x)
    torch.manual_seed(0)
    net = guarded()
    optimizer = torch.optim.Adam(net.parameters())
    pace = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=epochs * -(-len(x) // 128))
    for epoch in range(epochs):
        k = max(1, round(K * min(1.0, (epoch + 1) / (0.4 * epochs))))
        for rows in torch.randperm(len(x)).split(128):
            changed = attacked(net, x[rows], shift(net, x[rows]), k)
            clean, moved = net(torch.cat([x[rows], changed])).split(len(rows))
            loss = F.kl_div(moved.log_softmax(1), clean.softmax(1), reduction="batchmean")
            optimizer.zero_grad()
            (F.cross_entropy(clean, y[rows]) + WEIGHT * loss).backward()
            optimizer.step()
            pace.step()
        if epoch % 5 == 4:
            right = (net(held_x).argmax(1) == held_y).double().mean()
            points = attacked(net, held_x, lambda logits: F.cross_entropy(logits, held_y, reduction="none"), K, 20)
            under = (net(points).argmax(1) == held_y).double().mean()
            print(f"epoch {epoch + 1}: accuracy {right:.1%}, under {K} changes {under:.1%}", flush=True)
    return net


def defences(x: Tensor, y: Tensor, weights: Path | None) -> dict[str, nn.Module]:
    """Return all of them by name; the last one only if its weights are given."""
    torch.manual_seed(0)
    masked = fit(plain(), x, y, lambda part: torch.where(torch.rand_like(part) < KEEP, part, 0.5))
    found = {
        "rounding": Rounded(fit(plain(), x, y, torch.round)),
        "noise": Noisy(fit(plain(), x, y, lambda part: part + 0.25 * torch.randn_like(part))),
        "truncation": fit(Truncated(), x, y, lambda part: part, epochs=8),
        "ablation vote": Ablated(masked),
        "dropped ends": fit(Dropped(plain()), x, y, lambda part: part),
    }
    if weights is not None:
        trained = guarded()
        trained.load_state_dict(torch.load(weights, weights_only=True))
        found[SPARSE] = trained.eval().requires_grad_(False)
    return found


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
    cut = int(len(x) * APPS)
    return Apps(x[:cut], y[:cut]), Apps(x[cut:], y[cut:])


def detector(kind: str, features: int) -> nn.Module:
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


def trained_detector(name: str, apps: Apps, seed: int = 0) -> nn.Module:
    """A detector of `DETECTORS`, the same each time on one machine."""
    kind, _, way = name.partition("-")
    torch.manual_seed(seed)
    model = detector(kind, apps.x.shape[1])
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


class SparseReader(nn.Sequential):
    """Takes x and 1 − x, both 0 where an image is blank."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for before, after in ((2, 32), (32, 64), (64, 64)):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        super().__init__(*layers, nn.Flatten(), nn.Linear(64 * 16, 128), nn.ReLU(), nn.Linear(128, 10))


def trained_reader(keep: int, epochs: int, seed: int) -> nn.Module:
    """One-cycle AdamW; every image shows `keep` other pixels each time."""
    rows = data.load("mnist-5k")
    chosen = torch.arange(len(rows)) % 500 < 400
    images, labels = rows.images[chosen], rows.labels[chosen]
    torch.manual_seed(seed)
    model = SparseReader()
    order = torch.Generator().manual_seed(seed)
    steps = epochs * -(-len(labels) // 100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for epoch in range(epochs):
        for batch in torch.split(torch.randperm(len(labels), generator=order), 100):
            scores = noise.bits(seed, batch, epoch, (784,), stream=1)
            kept = torch.zeros(scores.shape, dtype=torch.bool).scatter_(1, scores.topk(keep, 1).indices, True)
            shown = blanked(images[batch], kept.view(-1, 1, 28, 28), "doubled")
            loss = F.cross_entropy(model(shown), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval().requires_grad_(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    torch.save(trained_sparse(args.epochs).state_dict(), args.out)


if __name__ == "__main__":
    main()
