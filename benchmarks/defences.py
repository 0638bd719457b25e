"""Attack small networks with defences of which most only look robust, by SparseAutoAttack.

    python -m benchmarks.defences --train build/sparse.pt
    python -m benchmarks.defences --weights build/sparse.pt --limit 32 --eps 1 4 10 24

Images are those of mnist-5k, averaged to 14 x 14. Training is seeded and takes seconds on a processor; only the network
that is trained against sparse changes takes minutes, so the first command stores it.
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

TRIM = 8  # products that a truncating neuron throws away at each end
SPARSE = "l0-trained"
VOTES, KEEP = 25, 0.4  # ablated copies, and the share of the inputs that each of them sees
K, STEPS = 20, 10  # pixels that change in sparse training, and steps in which they are looked for
STEP, WEIGHT = 0.25, 6.0  # of Sparse-PGD, and of the changed answers beside the clean ones
FIRST = 4  # members that the standard cascade begins with; its figure after them is given too


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


class Changed(nn.Module):
    """Changes its inputs before a network sees them."""

    def __init__(self, net: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.net, self.change = net, change

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(self.change(x))
        return out


def noisy(x: Tensor) -> Tensor:
    """Add noise, other noise each time."""
    return x + 0.25 * torch.randn_like(x)


def without_ends(x: Tensor) -> Tensor:
    """Take values near the ends of the box for background, so that corner values only erase."""
    return torch.where((x > 0.1) & (x < 0.9), x, 0.0)


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
        "rounding": Changed(fit(plain(), x, y, torch.round), torch.round),
        "noise": Changed(fit(plain(), x, y, noisy), noisy),
        "truncation": fit(Truncated(), x, y, lambda part: part, epochs=8),
        "ablation vote": Ablated(masked),
        "dropped ends": fit(Changed(plain(), without_ends), x, y, lambda part: part),
    }
    if weights is not None:
        trained = guarded()
        trained.load_state_dict(torch.load(weights, weights_only=True))
        found[SPARSE] = trained.eval().requires_grad_(False)
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
    parser.add_argument("--train", type=Path, help="train the network against sparse changes into this file, and end")
    parser.add_argument("--weights", type=Path, help="of that network")
    parser.add_argument("--only", nargs="+", help="these defences alone")
    parser.add_argument("--limit", type=int, default=32)
    parser.add_argument("--eps", type=int, nargs="+", default=[1, 4, 10, 24])
    parser.add_argument("--version", default="standard")
    parser.add_argument("--out", type=Path, help="append the lines to this JSON-lines file")
    args = parser.parse_args()
    if args.train:
        args.train.parent.mkdir(parents=True, exist_ok=True)
        torch.save(trained_sparse().state_dict(), args.train)
        return
    warnings.simplefilter("ignore")
    train_x, train_y, x, y = images()
    x, y = x[: args.limit], y[: args.limit]
    for name, net in defences(train_x, train_y, args.weights).items():
        for eps in args.eps if args.only is None or name in args.only else ():
            torch.manual_seed(0)
            began = time.perf_counter()
            auto = sz.SparseAutoAttack(net, eps=eps, version=args.version, verbose=False)
            auto.run_standard_evaluation(grey(x) if name == SPARSE else x, y)
            line = {"defence": name, "rows": len(x), "eps": eps, **line_of(auto.result)}
            text = json.dumps(line | {"seconds": round(time.perf_counter() - began, 1)})
            print(text, flush=True)
            if args.out:
                with args.out.open("a", encoding="utf-8") as file:
                    file.write(f"{text}\n")


if __name__ == "__main__":
    main()
