"""Measure the seconds per sample of BB, EAD and SparseFool beside foolbox and torchattacks, in one run.

    python -m benchmarks.peers --model M1 --model-dir weights/ --data mnist --limit 64 --steps 100

Needs foolbox 3.3.4 with numba, and torchattacks 3.5.1, in the environment. Both sides attack the same rows with equal
numbers of steps; ours runs them as one batch, foolbox too, torchattacks loops over them by itself. `first` is the first
call in a process of its own, which for foolbox's BB includes numba's compilation; `warm` is the median of later calls,
ours and theirs in turn in one process. Each is measured with torch's own number of threads and with one.
"""

import argparse
import statistics
import subprocess
import sys
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


def our_attack(kind: str, model: nn.Module, x: Tensor, y: Tensor, steps: int) -> Callable[[], Tensor]:
    """Our attack ready to run; it returns the method's own points, as the peers do."""
    name = {"bb": "bb-dataset", "ead": "ead-paper", "sparsefool": "sparsefool-paper"}[kind]
    attack = sz.get(name, steps=20 if kind == "sparsefool" else steps)
    if kind == "bb":  # foolbox's radius grows with the batch
        attack = sz.get(name, steps=steps, radius_batch=len(x))

    def run() -> Tensor:
        result = attack.run(model, x, y, start=starts(model, x, y) if kind == "bb" else None)
        return (result.own or result).x_adv

    return run


def ready(side: str, kind: str, model: nn.Module, x: Tensor, y: Tensor, steps: int) -> Callable[[], Tensor]:
    if side == "ours":
        return our_attack(kind, model, x, y, steps)
    return torchattacks_sparsefool(model, x, y) if kind == "sparsefool" else foolbox_attack(kind, model, x, y, steps)


def first_call(side: str, kind: str, threads: int) -> float:
    """Seconds of the first call in a process of its own, imports not counted."""
    command = [sys.executable, *sys.argv, "--first", side, "--only", kind, "--threads", str(threads)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def compare(kind: str, threads: int, model: nn.Module, x: Tensor, y: Tensor, args: argparse.Namespace) -> str:
    """One line of the table."""
    n, sides = len(x), ("ours", "theirs")
    first = {side: first_call(side, kind, threads) / n for side in sides}
    torch.set_num_threads(threads)
    work = {side: ready(side, kind, model, x, y, args.steps) for side in sides}
    answers = {side: work[side]() for side in sides}
    rounds = [{side: clock(work[side])[0] / n for side in sides} for _ in range(args.runs)]
    warm = {side: statistics.median(r[side] for r in rounds) for side in sides}
    ratio = statistics.median(r["theirs"] / r["ours"] for r in rounds)
    cells = [*first.values(), first["theirs"] / first["ours"], *warm.values(), ratio]
    both = "; ".join(figures(model, x, y, answers[side]) for side in sides)
    return f"{kind:<12}{threads:>8}" + "".join(f"{cell:>14.4f}" for cell in cells) + f"  {both}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="M1")
    parser.add_argument("--model-dir")
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--data-dir")
    parser.add_argument("--limit", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3, help="warm calls of each side")
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({torch.get_num_threads(), 1}, reverse=True))
    parser.add_argument("--only", nargs="+", default=["bb", "ead", "sparsefool"])
    parser.add_argument("--first", choices=["ours", "theirs"], help="print the seconds of one first call and end")
    args = parser.parse_args()
    model = models.load(args.model, model_dir=args.model_dir)
    rows = data.load(args.data, limit=args.limit, seed=0, data_dir=args.data_dir)
    x, y = rows.images, rows.labels
    if args.first:
        torch.set_num_threads(args.threads[0])
        print(clock(ready(args.first, args.only[0], model, x, y, args.steps))[0])
        return
    columns = ("first ours", "first theirs", "theirs/ours", "warm ours", "warm theirs", "theirs/ours")
    print(f"{'attack':<12}{'threads':>8}" + "".join(f"{c:>14}" for c in columns) + "  ours; theirs (s/sample)")
    for kind in args.only:
        for threads in args.threads:
            print(compare(kind, threads, model, x, y, args), flush=True)


if __name__ == "__main__":
    main()
