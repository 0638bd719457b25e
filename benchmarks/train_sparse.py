"""Train a small network against sparse changes, as a small example of a real defence.

As in sTRADES (https://arxiv.org/abs/2405.05075): a batch is attacked by a few steps of Sparse-PGD, which look for
answers far from the clean ones, and the loss asks for right clean answers that the changes do not move. The number of
pixels that may change grows to K over the first epochs.

    python -m benchmarks.train_sparse --out build/sparse.pt
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.defences import grey, guarded, images

K, STEPS = 20, 10  # pixels that change, and steps in which they are looked for
STEP, WEIGHT = 0.25, 6.0  # of Sparse-PGD, and of the changed answers beside the clean ones


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    x, y, held_x, held_y = images()
    x, held_x = grey(x), grey(held_x)
    torch.manual_seed(0)
    net = guarded()
    optimizer = torch.optim.Adam(net.parameters())
    pace = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=args.epochs * -(-len(x) // 128))
    for epoch in range(args.epochs):
        k = max(1, round(K * min(1.0, (epoch + 1) / (0.4 * args.epochs))))
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
    args.out.parent.mkdir(parents=True, exist_ok=True)
    torch.save(net.state_dict(), args.out)


if __name__ == "__main__":
    main()
