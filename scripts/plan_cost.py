"""What the plans of the paper cost: cells, rows, queries, and hours on one H200, for docs/reproducing.md.

Queries are those the paper prints per sample, times the rows; where it prints none, the mean of what it prints for
that attack, data set and number of steps, and otherwise a forward and a backward pass per step. At larger budgets
attacks need fewer, so fixed budgets are counted too high. Hours are the model's own passes in TF32: measured where
docs/speed.md has the network, elsewhere by its multiply-adds.
"""

import csv
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from sigmazero.bench.plan import DataSpec, Question, read_plan
from sigmazero.data import DATASETS
from sigmazero.report import published

# Microseconds of a forward and a backward pass for one input. Measured: M, C1, C3 and I1; the others from billions
# of multiply-adds (31 µs each on CIFAR-10, as for C1; 64 µs each on ImageNet, as for I1).
MEASURED = {"M": 1.93, "C1": 163.0, "C3": 21.6, "I1": 117.0}
ALIKE = {"C4": "C3", "C10": "C3", "C11": "C3", "C12": "C3", "C5": "C1", "C9": "C1", "I6": "I1"}
BILLIONS = {"C2": 1.3, "C7": 1.3, "C8": 3.9, "C6": 38.8}
BILLIONS |= {"I2": 4.1, "I3": 4.1, "I5": 4.1, "I4": 4.8, "I7": 22.8, "I8": 15.4}
PER_BILLION = {"C": 31.0, "I": 64.0}
TABLES = {"minimum_norm": "kqueries", "fixed_budget": "kqueries_at_smallest"}
Printed = dict[tuple[str, str, int], float]


@dataclass(frozen=True)
class Cost:
    """Of a plan: how many cells and samples, how many queries in all, and the hours they take."""

    cells: int
    samples: int
    queries: float
    hours: float


def microseconds(code: str) -> float:
    """The time of a forward and a backward pass of a model for one input; that of a small network if unknown."""
    if code in BILLIONS:
        return BILLIONS[code] * PER_BILLION[code[0]]
    return MEASURED.get(ALIKE.get(code, code), MEASURED["M"])


def printed(table: str) -> Printed:
    """Queries per sample in a table of the paper, by model, attack and steps; those it got wrong are left out."""
    text = resources.files("sigmazero.report").joinpath(f"paper/{table}.csv").read_text("utf-8")
    return {
        (row["model"], row["attack"], int(row["steps"])): 1000 * float(row[TABLES[table]])
        for row in csv.DictReader(text.splitlines())
        if row[TABLES[table]] and not any(word in row["note"] for word in published.ODD)
    }


def queries(question: Question, known: Printed) -> float:
    """Queries per sample of a cell."""
    name = question.label.removesuffix("-paper").split(" ")[0]
    steps = question.attack.steps // (2 if name == "sparse-rs" else 1)
    code = question.model.name
    steps_of_table = {steps} if name != "sparsefool" else {100, 1000}  # its own 20 in every table
    alike = {
        model: value
        for (model, attack, n), value in known.items()
        if attack == name and n in steps_of_table and model[0] == code[0]
    }
    if alike:
        return alike.get(code, sum(alike.values()) / len(alike))
    return 2.0 * steps


def count(data: DataSpec) -> int:
    """How many rows a plan asks for; rows that code makes are one point."""
    held = DATASETS[data.source].size if data.source in DATASETS else 1
    if isinstance(data.rows, str):
        start, stop = (int(end) if end else None for end in data.rows.split(":"))
        return len(range(held)[start:stop])
    if data.rows is not None:
        return len(data.rows)
    return min(held, data.limit or held)


def cost(path: Path) -> Cost:
    """What a plan costs."""
    known = {table: printed(table) for table in TABLES}
    total = hours = 0.0
    samples = 0
    questions = read_plan(path).questions
    for question in questions:
        rows = count(question.data)
        samples += rows
        asked = rows * queries(question, known["minimum_norm" if question.budget is None else "fixed_budget"])
        total += asked
        hours += asked / 2 * microseconds(question.model.name) / 3.6e9
    return Cost(len(questions), samples, total, hours)


def line(path: Path) -> str:
    """A line of the table in the page."""
    found = cost(path)
    queries, hours = (f"{each:,.0f}" if each >= 1 else "under 1" for each in (found.queries / 1e6, found.hours))
    return f"| {path.name} | {found.cells:,} | {found.samples:,} | {queries} | {hours} |"


if __name__ == "__main__":
    for plan in sorted((Path(__file__).parents[1] / "experiments").glob("*.toml")):
        sys.stdout.write(line(plan) + "\n")
