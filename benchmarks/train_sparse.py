"""Train a small network against sparse changes, as a stand-in for networks that are defended in earnest.

Every batch is attacked first: in a few rounds those pixels go to an end of the box that the gradient says cost most,
or, in every other batch, random ones. Half of each batch stays clean.

    python -m benchmarks.train_sparse --out build/sparse.pt
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.defences import images, plain

K, ROUNDS = 12, 4  # pixels that change, and in how many rounds they are chosen


def guided(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """K pixels at the ends of the box, those of the largest slope first, chosen anew in each round."""
    point, free = x.clone(), torch.ones_like(x, dtype=torch.bool)
    for _ in range(ROUNDS):
        point.requires_grad_()
        (slope,) = torch.autograd.grad(F.cross_entropy(net(point), y, reduction="sum"), point)
        gain = torch.where(slope > 0, slope * (1 - point), -slope * point) * free
        chosen = torch.zeros_like(free).flatten(1).scatter(1, gain.flatten(1).topk(K // ROUNDS).indices, True)
        free, chosen = free & ~chosen.view_as(free), chosen.view_as(free)
        point = torch.where(chosen, (slope > 0).to(x.dtype), point).detach()
    return point


def blind(x: Tensor) -> Tensor:
    """K random pixels at random ends."""
    chosen = torch.zeros_like(x).flatten(1).scatter(1, torch.rand_like(x).flatten(1).topk(K).indices, 1.0).bool()
    return torch.where(chosen.view_as(x), torch.rand_like(x).round(), x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=400)
    args = parser.parse_args()
    x, y, held_x, held_y = images()
    torch.manual_seed(0)
    net = plain(128)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for turn, rows in enumerate(torch.randperm(len(x)).split(128)):
            part, half = x[rows], len(rows) // 2
            changed = blind(part[half:]) if turn % 2 else guided(net, part[half:], y[rows[half:]])
            optimizer.zero_grad()
            F.cross_entropy(net(torch.cat([part[:half], changed])), y[rows]).backward()
            optimizer.step()
        if epoch % 50 == 49:
            right = (net(held_x).argmax(1) == held_y).double().mean()
            under = (net(guided(net, held_x, held_y)).argmax(1) == held_y).double().mean()
            print(f"epoch {epoch + 1}: accuracy {right:.1%}, under {K} guided changes {under:.1%}", flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    torch.save(net.state_dict(), args.out)


if __name__ == "__main__":
    main()
