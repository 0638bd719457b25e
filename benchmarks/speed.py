"""Milliseconds per step of each attack, against the floor: the model's own forward and backward pass, captured.

    python -m benchmarks.speed --attacks sigma-zero --models smallcnn:32 prn18:32 --precision tf32 --fuse

Everything in one row is measured in the same run; compare ratios. On a CPU the floor is the bare eager pass.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import sigmazero as sz
from sigmazero.core.inputs import make_problem
from sigmazero.models.architectures import build
from sigmazero.run import Hardware, Prepared
from sigmazero.run.precision import lower, quiet, search_precision
from sigmazero.run.steppers import Stepper

MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "smallcnn": (lambda: build("smallcnn"), (1, 28, 28), 10),
    "prn18": (lambda: build("preact-resnet18"), (3, 32, 32), 10),
    "wrn28-10": (lambda: build("wide-resnet", depth=28, width=10), (3, 32, 32), 10),
    "resnet18-224": (lambda: build("resnet18-imagenet"), (3, 224, 224), 1000),
}
DEFAULT = ["smallcnn:32", "smallcnn:512", "prn18:32", "prn18:512", "wrn28-10:32", "resnet18-224:16", "resnet18-224:128"]


def clock(work: Callable[[], object], times: int, device: torch.device) -> float:
    """Median milliseconds of one call, over five rounds of `times` calls."""
    work()
    rounds = []
    for _ in range(5):
        if device.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(times):
            work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        rounds.append(1000 * (time.perf_counter() - began) / times)
    return statistics.median(rounds)


def bare(model: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], object]:
    """A forward and a backward pass, nothing else."""

    def work() -> Tensor:
        with torch.enable_grad():
            point = x.detach().requires_grad_()
            (grad,) = torch.autograd.grad(model(point).sum(), point)
        return grad

    return work


def captured(work: Callable[[], object]) -> Callable[[], object]:
    """The same, recorded and replayed."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def stepping(attack: sz.Attack, model: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, hardware: Hardware) -> Stepper:
    """An attack under way on a batch that never finishes."""
    problem = make_problem(x, y, budget=x[0].numel() // 50 if attack.kind == "budget" else None)
    prepared = Prepared(model, hardware)
    oracle = prepared.oracle(problem, len(x))
    return prepared.phases(attack, problem, len(x))[0].begin(oracle, None)


def queries(attack: sz.Attack, model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Forward and backward passes of one step for one sample, in units of one of each."""
    rows = [0, 0]

    def counting(points: Tensor) -> Tensor:
        rows[0] += len(points)
        logits: Tensor = model(points)
        if logits.requires_grad:
            logits.register_hook(lambda grad: rows.__setitem__(1, rows[1] + len(grad)))
        return logits

    stepper = stepping(attack, counting, x, y, Hardware(capture=False))
    rows[:] = 0, 0
    stepper.go(4)
    return (rows[0] + rows[1]) / (2 * 4 * len(x))  # towards the input both cost about the same


def advlib_step(name: str, model: nn.Module, x: Tensor, y: Tensor) -> float | None:
    """Milliseconds per step of adv-lib's version, where it has one and can be imported."""
    try:
        from adv_lib.attacks import fmn, pdpgd, sigma_zero
    except ImportError:
        return None
    calls: dict[str, Callable[[int], object]] = {
        "sigma-zero": lambda n: sigma_zero(model, x, y, num_steps=n),
        "fmn": lambda n: fmn(model, x, y, norm=0, steps=n),
        "pdpgd-paper": lambda n: pdpgd(model, x, y, norm=0, num_steps=n),
    }
    if name not in calls:
        return None
    with torch.enable_grad():
        long, short = (clock(lambda n=n: calls[name](n), 1, x.device) for n in (50, 10))  # type: ignore[misc]
    return (long - short) / 40


def measure(name: str, model_name: str, batch: int, hardware: Hardware, device: torch.device) -> dict[str, object]:
    """One row of the table."""
    make, shape, classes = MODELS[model_name]
    torch.manual_seed(0)
    model = make().to(device).eval()
    x = torch.rand(batch, *shape, device=device)
    attack = sz.get(name, steps=2000)
    with quiet(model), torch.no_grad(), search_precision(hardware.precision):
        y = model(x).argmax(1)
        work = bare(lower(model, hardware.precision), x)
        times = max(5, min(100, int(2e4 // (batch * shape[-1]))))
        row: dict[str, object] = {"attack": name, "model": model_name, "batch": batch, "classes": classes}
        row["bare"] = clock(work, times, device)
        row["floor"] = clock(captured(work), times, device) if device.type == "cuda" else row["bare"]
        row["queries"] = queries(attack, model, x, y)
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        stepper = stepping(attack, model, x, y, hardware)

        def some_steps() -> None:
            stepper.go(stepper.interval)
            bool(stepper.tally.alive.any())

        row["ours"] = clock(some_steps, max(1, times // stepper.interval), device) / stepper.interval
        row["peak_mb"] = torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else None
        row["advlib"] = advlib_step(name, model, x, y)
    row["over_floor"] = row["ours"] / (row["floor"] * row["queries"])  # type: ignore[operator]
    row["advlib_over_ours"] = None if row["advlib"] is None else row["advlib"] / row["ours"]  # type: ignore[operator]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attacks", nargs="+", default=["sigma-zero"], help="names, or 'all'")
    parser.add_argument("--models", nargs="+", default=DEFAULT, help="name:batch")
    parser.add_argument("--precision", nargs="+", default=["fp32"])
    parser.add_argument("--fuse", action="store_true")
    parser.add_argument("--out", type=Path, help="append the rows to this JSON-lines file")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    whole = [name for name, attack in sz.ATTACKS.items() if len(attack.phases()) == 1]
    names = whole if args.attacks == ["all"] else args.attacks
    columns = ("bare", "floor", "ours", "advlib", "queries", "over_floor", "advlib_over_ours", "peak_mb")
    print(f"{'attack':<22}{'model':<16}{'batch':>6}{'number':>7}" + "".join(f"{c:>17}" for c in columns))
    for precision in args.precision:
        for spec in args.models:
            model_name, _, batch = spec.partition(":")
            for name in names:
                row = measure(name, model_name, int(batch), Hardware(precision=precision, fuse=args.fuse), device)
                row |= {"precision": precision, "fuse": args.fuse, "torch": torch.__version__}
                cells = "".join(f"{row[c]:>17.3f}" if row[c] is not None else f"{'–':>17}" for c in columns)
                print(f"{name:<22}{model_name:<16}{batch:>6}{precision:>7}{cells}", flush=True)
                if args.out:
                    with args.out.open("a") as file:
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
