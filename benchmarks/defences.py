"""Attack small networks with defences of which most only look robust, by SparseAutoAttack.

Images are those of mnist-5k, averaged to 14 x 14. Networks are trained here, in seconds; the one that is trained
against sparse changes takes a few minutes.

    python -m benchmarks.train_sparse --out build/sparse.pt
    python -m benchmarks.defences --weights build/sparse.pt --limit 32 --eps 1 4 10 24
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sigmazero as sz
from sigmazero import data
from sigmazero.auto import CascadeResult

FIRST = 4  # members that the standard cascade begins with; its figure after them is given too
TRIM = 8  # products that a truncating neuron throws away at each end
TRAINED = "l0-trained"
VOTES, KEEP = 25, 0.4  # ablated copies, and the share of the inputs that each of them sees


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
        found[TRAINED] = trained.eval().requires_grad_(False)
    return found


def line_of(found: CascadeResult) -> dict[str, object]:
    """Return the figures of an evaluation."""
    after = {member: round(found.robust_accuracy(after=k + 1), 4) for k, member in enumerate(found.members)}
    queries = torch.stack([run.queries for run in found.runs]).double().mean(1)
    return {
        "version": str(found.cascade),
        "clean": round(found.clean_accuracy, 4),
        "left after": after,
        "queries": queries.round().long().tolist(),
        "cost beside the first": round(float(queries.sum() / queries[:FIRST].sum()), 3),
        "findings": [f"{each.code} {each.severity}" for each in found.findings],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, help="of the network that benchmarks.train_sparse trains")
    parser.add_argument("--only", nargs="+", help="these defences alone")
    parser.add_argument("--limit", type=int, default=32)
    parser.add_argument("--eps", type=int, nargs="+", default=[1, 4, 10, 24])
    parser.add_argument("--version", default="standard")
    parser.add_argument("--out", type=Path, help="append the lines to this JSON-lines file")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    train_x, train_y, x, y = images()
    x, y = x[: args.limit], y[: args.limit]
    for name, net in defences(train_x, train_y, args.weights).items():
        for eps in args.eps if args.only is None or name in args.only else ():
            torch.manual_seed(0)
            began = time.perf_counter()
            auto = sz.SparseAutoAttack(net, eps=eps, version=args.version, verbose=False)
            auto.run_standard_evaluation(grey(x) if name == TRAINED else x, y)
            line = {"defence": name, "rows": len(x), "eps": eps, **line_of(auto.result)}
            text = json.dumps(line | {"seconds": round(time.perf_counter() - began, 1)})
            print(text, flush=True)
            if args.out:
                with args.out.open("a", encoding="utf-8") as file:
                    file.write(f"{text}\n")


if __name__ == "__main__":
    main()
