"""How the time of a step grows with the batch, the number of features, the steps and the classes.

    python -m benchmarks.scaling --attack sigma-zero --out benchmarks/results/scaling.jsonl

Each series is fitted on a log-log scale; a slope of 1 means proportional growth, 0 means none. The model is a small
convolution whose own cost is part of each figure, given beside it as the floor.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from torch import nn

import sigmazero as sz
from benchmarks.floors import bare, captured, clock
from benchmarks.speed import stepping
from sigmazero.run import Hardware
from sigmazero.run.precision import Numbers, quiet, search_numbers

SERIES: dict[str, list[int]] = {
    "batch": [16, 32, 64, 128, 256, 512, 1024],
    "side": [16, 32, 64, 128, 224],
    "classes": [10, 100, 1000, 10000],
    "steps": [25, 50, 100, 200, 400],
}
FIXED = {"batch": 64, "side": 32, "classes": 10, "steps": 100}


def network(classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, classes)
    )


def milliseconds(name: str, at: dict[str, int], hardware: Hardware, device: torch.device) -> tuple[float, float]:
    """Time of all the steps, and of as many bare passes."""
    torch.manual_seed(0)
    model = network(at["classes"]).to(device).eval()
    x = torch.rand(at["batch"], 3, at["side"], at["side"], device=device)
    attack = sz.get(name, steps=20 * at["steps"])  # a schedule long enough for every repetition
    with quiet(model), torch.no_grad(), search_numbers(hardware.precision, Numbers.current(device)).flags():
        _, stepper = stepping(attack, model, x, model(x).argmax(1), hardware)
        work = bare(model, x)
        floor = clock(captured(work, device), 20, device) * at["steps"]
        return clock(lambda: stepper.go(at["steps"]), 1, device), floor


def slope(sizes: list[int], times: list[float]) -> float:
    """Exponent of the power law through the points."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attack", default="sigma-zero")
    parser.add_argument("--out", type=Path, help="append the series to this JSON-lines file")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for axis, series in SERIES.items():
        sizes = series if device.type == "cuda" else series[:4]  # the largest would take a processor minutes each
        pairs = [milliseconds(args.attack, FIXED | {axis: n}, Hardware(), device) for n in sizes]
        ours, floor = ([pair[k] for pair in pairs] for k in (0, 1))
        measured = "  ".join(f"{n}: {a:.2f} ({b:.2f})" for n, a, b in zip(sizes, ours, floor, strict=True))
        fit = f"slope {slope(sizes, ours):.2f} (floor {slope(sizes, floor):.2f})"
        print(f"{args.attack} {axis:<8} {fit}  ms for {FIXED['steps']} steps (floor): {measured}", flush=True)
        if args.out:
            row = {"attack": args.attack, "axis": axis, "sizes": sizes, "ours_ms": ours, "floor_ms": floor}
            with args.out.open("a") as file:
                file.write(json.dumps(row | {"device": device.type, "torch": torch.__version__}) + "\n")


if __name__ == "__main__":
    main()
