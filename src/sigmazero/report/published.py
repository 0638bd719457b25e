"""Compare tables with the figures printed in the paper.

The files in `paper/` hold its tables as printed. Its queries leave out the clean check and the final verification, its
seconds are those of another device, and its rows are the whole test set.
"""

import csv
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Any

from sigmazero.report.table import MEMORY, Line, Table
from sigmazero.store.facts import CellInfo

KS = (24.0, 50.0)  # at which the paper gives success rates without a budget
COSTS = ("seconds", "kqueries")
ODD = ("swapped", "suspect")  # notes on rows whose queries and seconds cannot be trusted
COMPONENTS = {  # parameters of σ-zero, and what the table of its ablation calls them
    "normalize": "normalization",
    "adaptive_threshold": "adaptive_tau",
    "projection": "projection",
    "l0_term": "l0_term",
}

Printed = dict[str, str]


@dataclass(frozen=True)
class Usual:
    """Explain the paper's names: the data set of a model, and the parameters of an attack; None if unknown.

    A plan may give any name to anything, so a name alone does not make a run one of the paper's.
    """

    dataset: Callable[[str], str | None]
    parameters: Callable[[str], Mapping[str, Any] | None]

    def inputs(self, info: CellInfo, model: str) -> bool:
        """Return whether a known model has its published weights and is asked about rows of its own data set."""
        dataset, source = self.dataset(model), info.origin.get("data", {}).get("source")
        own = info.origin.get("model", {}).get("weights") is not None
        return not own and (dataset is None or source is None or source == dataset)

    def attack(self, info: CellInfo) -> bool:
        """Return whether it is the registered attack with its usual parameters, whatever the number of steps."""
        usual = self.parameters(info.attack)
        if usual is None:
            return False
        return all(info.parameters.get(name, value) == value for name, value in usual.items() if name != "steps")


def compare(table: Table, usual: Usual) -> Table:
    """Return the table with the paper's figures added to the lines that are `usual` there."""
    blocks = [tuple(replace(line, paper=_figures(line, block, usual)) for line in block) for block in table.blocks]
    return replace(table, blocks=tuple(blocks), compared=True)


def _figures(line: Line, block: tuple[Line, ...], usual: Usual) -> dict[str, float]:
    """Return the paper's figures for a line, by the names of ours."""
    info = line.run.info
    # A user's model may be named M1 too; the loaded spec decides.
    model = str(info.origin.get("model", {}).get("spec", info.model))
    if (info.goal, info.unit) != ("untargeted", "feature") or not usual.inputs(info, model):
        return {}  # the paper has nothing else
    if set(COMPONENTS) <= set(line.words):
        switches = [str(info.parameters[name]).lower() for name in COMPONENTS]
        found = _rows("ablation_components").get((model, *switches))
        return _numbers(found) if found and info.budget is None and info.steps == 1000 else {}
    if not usual.attack(info):
        return {}
    key = (model, info.attack.removesuffix("-paper"), _steps(info, block))
    if info.budget is None:
        return _numbers(_rows("minimum_norm").get(key, {}))
    figures: dict[str, float] = {}
    for name in [name for name, value in line.figures.items() if value is not None]:
        k = name.removeprefix("asr_")
        if found := _rows("fixed_budget").get((*key, k)):
            printed = {f"asr_{k}": found["asr"], "vram_gb": found["vram_gb"], "note": found["note"]}
            if k == str(info.budget):  # our cost is that of this budget, the paper's that of its smallest
                printed |= {cost: found[f"{cost}_at_smallest"] for cost in COSTS}
            figures |= _numbers(printed)
    return figures


def _steps(info: CellInfo, block: tuple[Line, ...]) -> str:
    """Return the number of steps in the caption of the paper's table."""
    name = info.attack.removesuffix("-paper")
    if name == "sparse-rs":  # it needs no backward passes and got twice the steps
        return str(info.steps // 2)
    if name == "sparsefool":  # it has 20 steps in every table; the other attacks of the block tell which table
        others = {line.run.info.steps for line in block if line.run.info.attack != info.attack}
        return str(others.pop()) if len(others) == 1 else ""
    return str(info.steps)


def _numbers(found: Printed) -> dict[str, float]:
    left_out = COSTS if any(word in found.get("note", "") for word in ODD) else ()
    numbers: dict[str, float] = {}
    for name, text in found.items():
        if name.startswith("asr_"):
            numbers[name] = float(Decimal(text) / 100)  # exactly what is printed
        elif name in ("median_l0", *COSTS) and name not in left_out and text:
            numbers[name] = float(text)
        elif name == "vram_gb" and text and not text.startswith(">"):  # more than the device had: not a number
            numbers[MEMORY] = float(text)
    return numbers


@cache
def _rows(name: str) -> dict[tuple[str, ...], Printed]:
    """Read a table, by what identifies its rows."""
    text = resources.files("sigmazero.report").joinpath(f"paper/{name}.csv").read_text("utf-8")
    rows = csv.DictReader(text.splitlines())
    if name == "ablation_components":
        return {(_model(row), *(row[column] for column in COMPONENTS.values())): row for row in rows}
    keys = ("model", "attack", "steps", *(["budget"] if name == "fixed_budget" else []))
    return {tuple(row[key] for key in keys): row for row in rows}


def _model(row: Printed) -> str:
    """Return the model that the numbers of a row belong to; where the paper prints another, the note has it."""
    noted = re.search(r"the numbers are those of (\w+)", row["note"])
    return noted[1] if noted else row["model"]
