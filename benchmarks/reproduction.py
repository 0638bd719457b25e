"""The arithmetic of the whole reproduction, for docs/scaling.md: GPU-hours per table of the paper, memory per model.

    python -m benchmarks.reproduction

Queries and the time of a pass are those of scripts/plan_cost.py: printed by the paper, and measured on one H200 in
TF32. Each attack's own arithmetic comes on top, as measured (docs/speed.md). Memory is measured for four networks and
elsewhere estimated from weights and activations.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from scripts.plan_cost import TABLES as PRINTED
from scripts.plan_cost import count, microseconds, printed, queries
from torch import nn

from sigmazero.bench.plan import read_plan
from sigmazero.models import zoo

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
# Time over that of the queries alone: measured on PreActResNet-18 in TF32, not fused; sparsefool was not.
OVER = {"sigma-zero": 1.14, "fmn": 1.15, "pdpgd": 1.49, "ead": 1.07, "pgd-l0": 1.20, "sparse-rs": 1.40, "bb": 1.14}
OVER |= {"spgd": 1.36, "vfga": 0.70, "sparsefool": 1.2}
FIRST, REST = ("C1", "C2", "C3", "C4"), tuple(f"C{i}" for i in range(5, 13))
IMAGENET, MORE = ("I1", "I2", "I3", "I4"), ("I5", "I6", "I7", "I8")
MNIST = ("M1", "M2")
# What the paper shows: the plan, and of its models those that the table prints.
SHOWN: dict[str, tuple[str, tuple[str, ...]]] = {
    "Table 1": ("minimum-norm-1000", (*MNIST, *FIRST, *IMAGENET)),
    "Table 2": ("ablation-components", ()),
    "Table 3": ("fixed-budget-1000", (*MNIST, *FIRST)),
    "Table 4": ("fixed-budget-1000", IMAGENET),
    "Table 6": ("minimum-norm-1000", (*REST, *MORE)),
    "Table 7": ("minimum-norm-100", MNIST),
    "Table 8": ("minimum-norm-100", (*FIRST, *REST)),
    "Table 9": ("minimum-norm-100", (*IMAGENET, *MORE)),
    "Table 10": ("fixed-budget-1000", REST),
    "Table 11": ("fixed-budget-1000", MORE),
    "Table 12": ("fixed-budget-5000", MNIST),
    "Table 13": ("fixed-budget-5000", (*FIRST, *REST)),
    "Table 14": ("fixed-budget-5000", (*IMAGENET, *MORE)),
    "Table 15": ("fixed-budget-10000", ()),
    "Figure 3": ("ablation-smoothing-threshold", ()),
    "Figure 4": ("ablation-threshold-rate", ()),
    "Figure 5": ("robustness-curves-fixed-budget", ()),
}
PEAKS = {"M1": (512, 628), "C3": (512, 3157), "C1": (32, 1797), "I1": (128, 5910)}  # batch, MB, docs/speed.md
ELSEWHERE = ("timm", "robustbench")  # networks of other packages, which may not be here
BASE, WEIGHTS, ACTIVATIONS = 700, 2.0, 1.8  # MB of CUDA itself, and how often the others are held: fits the four above


@dataclass(frozen=True)
class CellCost:
    """A cell of a plan: its rows, and what one takes on the mean."""

    plan: str
    model: str
    attack: str
    budget: int | None
    rows: int
    batch: int
    seconds: float  # per row

    @property
    def hours(self) -> float:
        """Of all its rows on one GPU."""
        return self.rows * self.seconds / 3600


@cache
def cells() -> tuple[CellCost, ...]:
    """Every cell of the paper's tables and figures; cells of two plans are counted once."""
    known = {table: printed(table) for table in PRINTED}
    found = []
    for plan in dict.fromkeys(plan for plan, _ in SHOWN.values()):
        for q in read_plan(EXPERIMENTS / f"{plan}.toml").questions:
            asked = queries(q, known["minimum_norm" if q.budget is None else "fixed_budget"])
            over = next((each for name, each in OVER.items() if q.attack.name.startswith(name)), OVER["sigma-zero"])
            seconds = asked / 2 * microseconds(q.model.name) * over * 1e-6
            rows = count(q.data)
            found.append(CellCost(plan, q.model.name, q.label, q.budget, rows, q.batch_size, seconds))
    return tuple(found)


def shown() -> Iterator[tuple[str, list[CellCost]]]:
    """The cells of each table and figure, and of all of them."""
    for name, (plan, wanted) in SHOWN.items():
        yield name, [cell for cell in cells() if cell.plan == plan and (not wanted or cell.model in wanted)]
    yield "all", list(cells())


def line(name: str, some: Sequence[CellCost]) -> str:
    """The beginning of a line in the page: cells, rows, GPU-hours."""
    hours = sum(cell.hours for cell in some)
    return f"| {name} | {len(some)} | {sum(cell.rows for cell in some):,} | {hours:.2f} |"


def activations(network: nn.Module, shape: tuple[int, ...]) -> int:
    """Values that the layers of a network give for one input, counted without computing them."""
    total = 0

    def add(module: nn.Module, given: object, made: object) -> None:
        nonlocal total
        total += made.numel() if isinstance(made, torch.Tensor) else 0

    hooks = [layer.register_forward_hook(add) for layer in network.modules() if not list(layer.children())]
    network(torch.empty(1, *shape, device="meta"))
    for hook in hooks:
        hook.remove()
    return total


def memory_lines() -> Iterator[str]:
    """Of each model of the paper: weights, activations, and the memory that a plan's batch takes."""
    for code, entry in zoo.entries().items():
        if code[0] not in "MCI" or not code[1:].isdigit():
            continue
        batch = 32 if entry.dataset == "imagenet" else 256
        if entry.architecture in ELSEWHERE:
            yield f"| {code} | {4 * (entry.parameters or 0) / 2**20:,.0f} | not counted | {batch} | |"
            continue
        with torch.device("meta"):
            network = entry.build().eval()
        weights = 4 * sum(each.numel() for each in network.parameters()) / 2**20
        each = 4 * activations(network, tuple(entry.input_size)) / 2**20
        size = (BASE + WEIGHTS * weights + ACTIVATIONS * each * batch) / 1024
        yield f"| {code} | {weights:,.0f} | {each:.1f} | {batch} | {size:.1f} |"


def main() -> None:
    for name, some in shown():
        print(line(name, some))
    print("", *memory_lines(), sep="\n")


if __name__ == "__main__":
    main()
