"""The figures that the paper prints, beside ours.

The files hold the tables as printed. The paper's queries leave out the clean check and the final verification, its
seconds are those of another device, and its rows are the whole test set.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from functools import cache
from importlib import resources

from sigmazero.report.paper.usual import Usual
from sigmazero.report.tables.layout import Layout, Line
from sigmazero.store.facts import CellInfo

SOURCES = ("paper",)
Printed = dict[str, str]
COSTS = ("seconds", "kqueries")
ODD = ("swapped", "suspect")  # notes on rows whose queries and seconds cannot be trusted
COMPONENTS = {
    "normalize": "normalization",
    "adaptive_threshold": "adaptive_tau",
    "projection": "projection",
    "l0_term": "l0_term",
}


def compare(layout: Layout, usual: Usual, source: str = "paper") -> Layout:
    """The layout with the figures of a source beside ours, where it has any for what is `usual`."""
    if source not in SOURCES:
        raise ValueError(f"there are no figures of {source!r} to compare with; choose one of {', '.join(SOURCES)}")
    blocks = [tuple(replace(line, paper=_figures(line, block, usual)) for line in block) for block in layout.blocks]
    return replace(layout, blocks=tuple(blocks), compared=True)


def _figures(line: Line, block: tuple[Line, ...], usual: Usual) -> dict[str, float]:
    """The paper's figures for a line, by the names of ours."""
    info = line.info
    if info.goal != "untargeted" or info.unit != "feature":  # the paper has nothing else
        return {}
    # A model of one's own may be called M1; what was loaded says whether it is.
    model = str(info.origin.get("model", {}).get("spec", info.model))
    if not usual.inputs(info, model):
        return {}
    if set(COMPONENTS) <= set(line.words):
        return _ablated(model, info)
    if not usual.attack(info):
        return {}
    attack, steps = info.attack.removesuffix("-paper"), _steps(info, block)
    if info.budget is None:
        found = _minimum().get((model, attack, steps))
        return {} if found is None else _numbers(found, found["note"])
    printed: dict[str, float] = {}
    for name, value in line.figures.items():
        k = name.removeprefix("asr_")
        found = _fixed().get((model, attack, steps, k)) if value is not None else None
        if found is not None:
            named = {f"asr_{k}": found["asr"], "vram_gb": found["vram_gb"]}
            if k == str(info.budget):  # our cost is that of this budget, the paper's that of its smallest
                named |= {"seconds": found["seconds_at_smallest"], "kqueries": found["kqueries_at_smallest"]}
            printed |= _numbers(named, found["note"])
    return printed


def difference(ours: float | None, theirs: float | None) -> float | None:
    """Ours less theirs; nothing if both are infinite or one is absent.

    >>> difference(12.0, 11.0), difference(math.inf, 11.0), difference(None, 1.0), difference(math.inf, math.inf)
    (1.0, inf, None, None)
    """
    if ours is None or theirs is None or (math.isinf(ours) and math.isinf(theirs)):
        return None
    return ours - theirs


def _steps(info: CellInfo, block: tuple[Line, ...]) -> str:
    """The number of steps in the caption of the paper's table."""
    name = info.attack.removesuffix("-paper")
    if name == "sparse-rs":  # it needs no backward passes and got twice the steps
        return str(info.steps // 2)
    if name == "sparsefool":  # it has 20 steps in every table; the attacks beside it tell which table
        others = {line.info.steps for line in block if line.info.attack != info.attack}
        return str(others.pop()) if len(others) == 1 else ""
    return str(info.steps)


def _numbers(found: Printed, note: str) -> dict[str, float]:
    left_out = COSTS if any(word in note for word in ODD) else ()
    numbers: dict[str, float] = {}
    for name, text in found.items():
        if name.startswith("asr_"):
            numbers[name] = float(Decimal(text) / 100)  # exactly what is printed
        elif name in ("median_l0", *COSTS) and name not in left_out and text:
            numbers[name] = float(text)
        elif name == "vram_gb" and text and not text.startswith(">"):  # more than the device had: not a number
            numbers["memory_gb"] = float(text)
    return numbers


def _ablated(model: str, info: CellInfo) -> dict[str, float]:
    switches = tuple(str(info.parameters[name]).lower() for name in COMPONENTS)
    found = _components().get((model, *switches)) if info.budget is None and info.steps == 1000 else None
    return {} if found is None else _numbers(found, "")


@cache
def _minimum() -> dict[tuple[str, ...], Printed]:
    return {(row["model"], row["attack"], row["steps"]): row for row in _rows("minimum_norm")}


@cache
def _fixed() -> dict[tuple[str, ...], Printed]:
    return {(row["model"], row["attack"], row["steps"], row["budget"]): row for row in _rows("fixed_budget")}


@cache
def _components() -> dict[tuple[str, ...], Printed]:
    """By the model that the numbers belong to; where the paper names another, the notes say so."""
    return {
        (_meant(row), *(row[column] for column in COMPONENTS.values())): row for row in _rows("ablation_components")
    }


def _meant(row: Printed) -> str:
    told = re.search(r"the numbers are those of (\w+)", row["note"])
    return told.group(1) if told else row["model"]


def _rows(name: str) -> Iterator[Printed]:
    text = resources.files("sigmazero.report.paper").joinpath(f"{name}.csv").read_text("utf-8")
    yield from csv.DictReader(text.splitlines())
