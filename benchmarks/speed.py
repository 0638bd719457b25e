"""Measure milliseconds per step and seconds per call, beside the compute bound, the model's passes and other libraries.

    python -m benchmarks.speed --models smallcnn:32 prn18:512 --precision tf32 bf16 --calls 300

Everything in one row is measured in the same run; compare ratios.

bound     the operations of a forward and a backward pass, at the rate of a large matrix product in the row's format
eager     both passes of the network as it is, in TF32 on a CUDA device, captured: the floor of an unprepared model
prepared  both passes of the prepared copy, compiled where there is a compiler, captured
fold      a step of the attack on a folded copy
compiled  a step on a compiled copy, with the attack's own arithmetic compiled
adv-lib and authors: a step of theirs, where `adv_lib` and a module `authors_sigma_zero` can be imported.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import sigmazero as sz
from sigmazero.core.inputs import make_problem
from sigmazero.models.architectures import build
from sigmazero.run import Hardware, Prepared
from sigmazero.run.precision import Numbers, search_numbers, turn
from sigmazero.run.search import Steps

DEFAULT = ["smallcnn:32", "smallcnn:512", "prn18:32", "prn18:512", "wrn28-10:32", "resnet18-224:128"]
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "smallcnn": (lambda: build("smallcnn"), (1, 28, 28)),
    "resnet20": (lambda: build("resnet20"), (3, 32, 32)),
    "prn18": (lambda: build("preact-resnet18"), (3, 32, 32)),
    "wrn28-10": (lambda: build("wide-resnet", depth=28, width=10), (3, 32, 32)),
    "resnet18-224": (lambda: build("resnet18-imagenet"), (3, 224, 224)),
}


def made(spec: str, device: torch.device) -> tuple[nn.Module, Tensor, Tensor]:
    """Make a network with random weights, a batch of random inputs and the network's answers, from "name:batch"."""
    name, _, batch = spec.partition(":")
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model = make().to(device).eval().requires_grad_(False)
    x = torch.rand(int(batch), *shape, device=device)
    with torch.no_grad():
        return model, x, model(x).argmax(1)


def clock(work: Callable[[], object], times: int, device: torch.device) -> float:
    """Return the median milliseconds of a call, over five rounds of `times` calls."""
    work()
    rounds = []
    for _ in range(5):
        wait(device)
        began = time.perf_counter()
        for _ in range(times):
            work()
        wait(device)
        rounds.append(1000 * (time.perf_counter() - began) / times)
    return statistics.median(rounds)


def wait(device: torch.device) -> None:
    """Wait until the device is idle."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def bare(model: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], object]:
    """Return a function that makes a forward and a backward pass, and nothing else."""

    def work() -> Tensor:
        with torch.enable_grad():
            point = x.detach().requires_grad_()
            (grad,) = torch.autograd.grad(model(point).sum(), point)
        return grad

    return work


def captured(work: Callable[[], object], device: torch.device) -> Callable[[], object]:
    """Record a function and return its replay, on a CUDA device."""
    if device.type != "cuda":
        return work
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


def operations(model: nn.Module, x: Tensor) -> int:
    """Count the operations of a forward and a backward pass; the second, towards the input, has as many."""
    with FlopCounterMode(display=False) as counter:
        model(x[:1])
    return 2 * int(counter.get_total_flops()) * len(x)


def rate(dtype: torch.dtype, device: torch.device) -> float:
    """Measure the operations per millisecond of a large matrix product in this format."""
    side = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return 2 * side**3 / clock(lambda: a @ b, 5, device)


def stepping(attack: sz.Attack, model: nn.Module, x: Tensor, y: Tensor, hardware: Hardware) -> tuple[Prepared, Steps]:
    """Start an attack on a batch that never finishes; return what it runs on and its steps."""
    problem = make_problem(x, y, budget=x[0].numel() // 50 if attack.kind == "budget" else None)
    prepared = Prepared(model, hardware)
    prepared.compute_in(Numbers.current(x.device))
    oracle = prepared.oracle(problem, len(x))
    return prepared, prepared.phases(attack, problem, len(x), len(x))[0].begin(oracle, None)


def queries(attack: sz.Attack, model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Count the passes of one step for one sample; one forward and one backward pass count as 1."""
    rows = [0, 0]

    def counting(points: Tensor) -> Tensor:
        rows[0] += len(points)
        logits: Tensor = model(points)
        if logits.requires_grad:
            logits.register_hook(lambda grad: rows.__setitem__(1, rows[1] + len(grad)))
        return logits

    _, stepper = stepping(attack, counting, x, y, Hardware(capture=False))
    rows[:] = 0, 0
    stepper.go(4)
    return (rows[0] + rows[1]) / (2 * 4 * len(x))  # towards the input both cost about the same


def peers() -> dict[str, Callable[[nn.Module, Tensor, Tensor, int], object]]:
    """Return σ-zero of other libraries, if they can be imported."""
    found: dict[str, Callable[[nn.Module, Tensor, Tensor, int], object]] = {}
    try:
        from adv_lib.attacks import sigma_zero

        found["adv-lib"] = lambda model, x, y, n: sigma_zero(model, x, y, num_steps=n)
        from authors_sigma_zero import sigma_zero as released  # type: ignore[import-not-found]

        found["authors"] = lambda model, x, y, n: released(model, x, y, steps=n)
    except ImportError as missing:
        print(f"# without {missing.name}")
    return found


def step_of(stepper: Steps, times: int, device: torch.device) -> float:
    """Measure the milliseconds per step."""

    def some_steps() -> None:
        stepper.go(stepper.interval)
        bool(stepper.incumbents.alive.any())

    return clock(some_steps, max(1, times // stepper.interval), device) / stepper.interval


def measure(name: str, spec: str, precision: Any, device: torch.device) -> dict[str, Any]:
    """Measure a row of the table of steps."""
    model, x, y = made(spec, device)
    attack, dtype = sz.get(name, steps=5000), torch.bfloat16 if precision == "bf16" else torch.float32
    times = max(5, min(100, int(2e4 // (len(x) * x.shape[-1]))))
    row: dict[str, Any] = {"attack": name, "model": spec, "precision": precision}
    with turn(model, device, search_numbers(precision, Numbers.current(device))), torch.no_grad():
        row["bound"] = operations(model, x) / rate(dtype, device)
        row["eager"] = clock(captured(bare(model, x), device), times, device)
        row["queries"] = queries(attack, model, x, y)
        for how in ("none", "fold", "compile") if device.type == "cuda" else ("none", "fold"):
            if device.type == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            prepared, stepper = stepping(attack, model, x, y, Hardware(precision, prepare=how))
            row[{"compile": "compiled"}.get(how, how)] = step_of(stepper, times, device)
            if device.type == "cuda":
                row[f"peak {how}, MB"] = torch.cuda.max_memory_allocated() / 2**20
        copy = prepared.copy(make_problem(x, y))
        row["prepared"] = clock(captured(bare(copy, x), device), times, device)
        for peer, call in peers().items():
            with torch.enable_grad():
                long, short = (clock(partial(call, model, x, y, n), 1, device) for n in (50, 10))
            row[peer] = (long - short) / 40
    ours = row.get("compiled", row["fold"])
    row["over eager"], row["over prepared"] = (ours / (row[of] * row["queries"]) for of in ("eager", "prepared"))
    return row


def calls(name: str, spec: str, steps: int, device: torch.device) -> dict[str, Any]:
    """Measure whole calls as a user makes them: by default, compiled, in bf16, and by other libraries."""
    model, x, y = made(spec, device)
    row: dict[str, Any] = {"attack": name, "model": spec, "steps": steps}
    choices: dict[str, dict[str, Any]] = {"default": {}, "compile": {"prepare": "compile"}}
    choices["bf16"] = {"prepare": "compile", "precision": "bf16"} if device.type == "cuda" else {"precision": "bf16"}
    if device.type != "cuda":
        choices = {"none": {"prepare": "none"}} | {key: choices[key] for key in ("default", "bf16")}
    for how, options in choices.items():
        for when in ("first", "later"):
            run = partial(sz.get(name, steps=steps).run, model, x, y, hardware=Hardware(**options))
            row[f"{how}, {when}"] = seconds(run, device)
    for peer, call in peers().items():
        row[peer] = min(seconds(partial(call, model, x, y, steps), device) for _ in range(2))
    return row


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Measure a call."""
    wait(device)
    began = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - began


def say(row: dict[str, Any], out: Path | None) -> None:
    """Print a row, and append it to a file."""
    print("  ".join(f"{name} {value:.3f}" if isinstance(value, float) else f"{value}" for name, value in row.items()))
    if out:
        with out.open("a") as file:
            file.write(json.dumps(row | {"torch": torch.__version__}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attacks", nargs="+", default=["sigma-zero"], help="names, or 'all'")
    parser.add_argument("--models", nargs="+", default=DEFAULT, help="name:batch")
    parser.add_argument(
        "--precision", nargs="*", default=["tf32"], help="formats of the table of steps; none leaves it out"
    )
    parser.add_argument(
        "--calls", type=int, default=0, metavar="STEPS", help="also measure whole calls of so many steps"
    )
    parser.add_argument("--out", type=Path, help="append the rows to this JSON-lines file")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    whole = [name for name, attack in sz.ATTACKS.items() if len(attack.phases()) == 1]
    names = whole if args.attacks == ["all"] else args.attacks
    for spec in args.models:
        for name in names:
            for precision in args.precision:
                say(measure(name, spec, precision, device), args.out)
            if args.calls:
                say(calls(name, spec, args.calls, device), args.out)


if __name__ == "__main__":
    main()
