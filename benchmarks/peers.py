"""Seconds per sample of BB, EAD and SparseFool against foolbox and torchattacks, in one run on one machine.

    python benchmarks/peers.py --model M1 --model-dir weights/ --data mnist --limit 64 --steps 100

Needs foolbox 3.3.4 with numba, and torchattacks 3.5.1, in the environment. Both sides attack the same rows with equal
numbers of steps; ours runs them as one batch, foolbox too, torchattacks loops over them by itself.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import sigmazero as sz
from sigmazero import data, models


def foolbox_attack(kind: str, model: nn.Module, x: Tensor, y: Tensor, steps: int) -> Callable[[], Tensor]:
    """A foolbox attack ready to run; BB starts from the same pool images as ours would."""
    import foolbox

    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device=str(x.device))
    if kind == "ead":
        attack = foolbox.attacks.EADAttack(steps=steps)
        return lambda: attack.run(wrapped, x, y)
    attack = foolbox.attacks.L0BrendelBethgeAttack(steps=steps)
    return lambda: attack.run(wrapped, x, foolbox.Misclassification(y), starting_points=starts(model, x, y))


def starts(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """For each row another one that is predicted as another class."""
    with torch.no_grad():
        predicted = model(x).argmax(1)
    other = (predicted[None, :] != y[:, None]).float()
    return x[other.argmax(1)]


def torchattacks_sparsefool(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    from torchattacks.attacks.sparsefool import SparseFool

    attack = SparseFool(model, steps=20)
    return lambda: attack(x, y)


def clock(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    answer = work()
    return time.perf_counter() - began, answer


def figures(model: nn.Module, x: Tensor, y: Tensor, adversarial: Tensor) -> str:
    """Success and median l0 of returned points, changes below 1e-4 not counted (foolbox leaves rounding errors)."""
    with torch.no_grad():
        fooled = model(adversarial.clamp(0, 1)).argmax(1) != y
    l0 = ((adversarial - x).abs() > 1e-4).flatten(1).sum(1).double()
    return f"ASR {fooled.double().mean():.2f}, median {l0[fooled].median():.0f}" if fooled.any() else "ASR 0.00"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="M1")
    parser.add_argument("--model-dir")
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--data-dir")
    parser.add_argument("--limit", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=["bb", "ead", "sparsefool"])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = models.load(args.model, model_dir=args.model_dir)
    rows = data.load(args.data, limit=args.limit, seed=0, data_dir=args.data_dir)
    x, y = rows.images, rows.labels
    print(f"{'attack':<12}{'ours s/sample':>15}{'theirs s/sample':>17}{'theirs/ours':>13}  ours; theirs")
    for kind in args.only:
        name = {"bb": "bb-dataset", "ead": "ead-paper", "sparsefool": "sparsefool-paper"}[kind]
        attack = sz.get(name, steps=20 if kind == "sparsefool" else args.steps)
        if kind == "bb":  # foolbox's radius grows with the batch
            attack = sz.get(name, steps=args.steps, radius_batch=len(x))
        options = {"start": starts(model, x, y)} if kind == "bb" else {}
        ours, result = clock(lambda a=attack, o=options: a.run(model, x, y, **o))  # type: ignore[misc]
        peer = (
            torchattacks_sparsefool(model, x, y)
            if kind == "sparsefool"
            else foolbox_attack(kind, model, x, y, args.steps)
        )
        if kind == "bb":  # numba compiles at the first call
            foolbox_attack(kind, model, x[:2], y[:2], 2)()
        theirs, answer = clock(peer)
        own = result.own or result
        both = f"{figures(model, x, y, own.x_adv)}; {figures(model, x, y, answer)}"
        print(f"{kind:<12}{ours / len(x):>15.4f}{theirs / len(x):>17.4f}{theirs / ours:>13.1f}  {both}", flush=True)


if __name__ == "__main__":
    main()
