"""Measure the seconds per sample of BB, EAD and SparseFool beside foolbox and torchattacks, in one run.

    python -m benchmarks.peers --model M1 --data mnist --limit 64 --steps 100

Needs foolbox 3.3.4 with numba, and torchattacks 3.5.1. Both sides attack the same rows with equal numbers of steps,
ours as one batch, foolbox too, torchattacks row by row. After a first call of each, which compiles foolbox's BB, the
median of later calls counts, ours and theirs in turn, on one thread.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import sigmazero as sz

OURS = {"bb": "bb-dataset", "ead": "ead-paper", "sparsefool": "sparsefool-paper"}
RUNS = 3
Work = Callable[[], Tensor]


def starts(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """For each row another one that is predicted as another class."""
    with torch.no_grad():
        predicted = model(x).argmax(1)
    other = (predicted[None, :] != y[:, None]).float()
    return x[other.argmax(1)]


def theirs(kind: str, model: nn.Module, x: Tensor, y: Tensor, steps: int) -> Work:
    """Return their attack, ready to run; BB starts from the same points as ours."""
    if kind == "sparsefool":
        from torchattacks.attacks.sparsefool import SparseFool

        attack = SparseFool(model, steps=20)
        return lambda: attack(x, y)
    import foolbox

    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device=str(x.device))
    if kind == "ead":
        return lambda: foolbox.attacks.EADAttack(steps=steps).run(wrapped, x, y)
    attack, begin = foolbox.attacks.L0BrendelBethgeAttack(steps=steps), starts(model, x, y)
    return lambda: attack.run(wrapped, x, foolbox.Misclassification(y), starting_points=begin)


def ours(kind: str, model: nn.Module, x: Tensor, y: Tensor, steps: int) -> Work:
    """Return our attack, ready to run; it returns the method's own points, as the peers do."""
    attack = sz.get(OURS[kind], steps=20 if kind == "sparsefool" else steps)
    if kind == "bb":  # foolbox's radius grows with the batch
        attack = sz.get(OURS[kind], steps=steps, radius_batch=len(x))

    def run() -> Tensor:
        result = attack.run(model, x, y, start=starts(model, x, y) if kind == "bb" else None)
        return (result.own or result).x_adv

    return run


def seconds(work: Work) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def figures(model: nn.Module, x: Tensor, y: Tensor, adversarial: Tensor) -> str:
    """Success and median l0 of returned points, changes below 1e-4 not counted (foolbox leaves rounding errors)."""
    with torch.no_grad():
        fooled = model(adversarial.clamp(0, 1)).argmax(1) != y
    l0 = ((adversarial - x).abs() > 1e-4).flatten(1).sum(1).double()
    return f"ASR {fooled.double().mean():.2f}, median {l0[fooled].median() if fooled.any() else torch.inf:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="M1")
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--limit", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--only", nargs="+", default=list(OURS), choices=list(OURS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = sz.models.load(args.model)
    rows = sz.data.load(args.data, limit=args.limit, seed=0)
    x, y = rows.images, rows.labels
    for kind in args.only:
        both = [make(kind, model, x, y, args.steps) for make in (ours, theirs)]
        shown = "; ".join(figures(model, x, y, work()) for work in both)
        rounds = [[seconds(work) / len(x) for work in both] for _ in range(RUNS)]
        mine, peer = (statistics.median(each) for each in zip(*rounds, strict=True))
        ratio = statistics.median(b / a for a, b in rounds)
        print(
            f"{kind:<12}{mine:.4f} s a sample, theirs {peer:.4f}, ratio {ratio:.2f}; ours {shown} (theirs)", flush=True
        )


if __name__ == "__main__":
    main()
