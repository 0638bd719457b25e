"""Keep the figures of stores as CSV files in docs/evidence, and make the pages that set the paper's beside them.

    python -m experiments.evidence csv runs/minimum-norm-100.db there.csv --add --out docs/evidence/mnist.csv
    python -m experiments.evidence stronger runs/stronger.db --out docs/evidence/stronger.csv
    python -m experiments.evidence page

A CSV file has a line per finished cell, with the key of the cell, so whoever runs the same plan can compare. In a page
the parts between `<!-- name -->` and `<!-- end -->` are made from the files alone, and a test says when one is old. The
figures of the paper are those of `sigmazero.report`.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from experiments import seeds
from sigmazero.attacks.registry import ATTACKS
from sigmazero.bench.paper import usual
from sigmazero.core.metrics import asr, median
from sigmazero.report import runs
from sigmazero.report.formats import markdown
from sigmazero.report.intervals import wilson
from sigmazero.report.published import COMPONENTS, ODD
from sigmazero.report.table import GB
from sigmazero.store import Store

FOLDER = Path(__file__).parents[1] / "docs" / "evidence"
FILES = ("mnist.csv", "networks.csv", "figures.csv")
Row = dict[str, str]
KS = (10, 24, 50)
COLUMNS = (
    *("model", "dataset", "attack", "label", "unit", "steps", "budget", "parameters", "samples", "rows"),
    *(f"asr_{k}" for k in (*KS, "inf")),
    *("median_l0", "mean_l0", "returned_asr_24", "returned_asr_50", "returned_asr_inf", "returned_median_l0"),
    *("kqueries", "seconds", "memory_gb", "precision", "seed", "version", "device", "torch", "cell"),
)
KEY = ("model", "dataset", "attack", "label", "unit", "steps", "budget", "parameters", "seed")  # the question of a line
TABLES = {  # by label: number and plan
    "tab:1k_minimum_norm_complete": ("1", "minimum-norm-1000"),
    "tab:1k_remaining_minimum_norm_cifar_imagenet": ("6", "minimum-norm-1000"),
    "tab:0.1k_minimum_norm_mnist": ("7", "minimum-norm-100"),
    "tab:exp_results_cifar_appendix": ("8", "minimum-norm-100"),
    "tab:0.1k_minimum_norm_imagenet": ("9", "minimum-norm-100"),
    "tab:cifar-fixed_sigma-k": ("3", "fixed-budget-1000"),
    "tab:imagenet-fixed_sigma-k": ("4", "fixed-budget-1000"),
    "tab:1k_remaining_maximum_budget_cifar": ("10", "fixed-budget-1000"),
    "tab:1k_remaining_maximum_budget_imagenet": ("11", "fixed-budget-1000"),
    "tab:5k_maximum_budget_mnist": ("12", "fixed-budget-5000"),
    "tab:5k_maximum_budget_cifar": ("13", "fixed-budget-5000"),
    "tab:5k_maximum_budget_imagenet": ("14", "fixed-budget-5000"),
    "tab:10k_steps_cifar_imgnet": ("15", "fixed-budget-10000"),
}
PRINTED_AS = {"C10": "C3", "C5": "C4"}  # the ablation prints names whose numbers are those of other networks
NETWORKS = {  # title and plan
    "resnet20": ("ResNet-20, CIFAR-10, standard training", "networks"),
    "prn18-linf": ("PreActResNet-18, CIFAR-10, adversarially trained (Linf)", "networks"),
    "resnet50": ("ResNet-50, ImageNet, standard training", "photos"),
}
RETURNED = ("ead", "sparsefool")  # the paper has the points that these return by their own rule
POINTS, FEATURES = 3.0, 2.0  # larger differences need a cause
CAUSES = {
    "pdpgd": "adv-lib 0.2.8 gives our figure on the same rows; that code does not compute what is printed",
    "ead": "the reference ends a round for the whole batch by the summed loss; here each sample ends its own",
    "vfga": "100 steps change at most 100 features; the paper prints the success of 1000, and on M1 the ASR24 of M2",
    "sparsefool": "torchattacks 3.5.1 gives our figure on the same rows",
    "bb": "foolbox's code gives figures like those printed (next table). Its solver leaves the trust region where the "
    "boundary lies beyond it, and ours does not",
    "bb-dataset": "as for bb. The published runs looked for starting points in the current batch, which changes little",
    "spgd-projected": "the released code counts the idle steps of a whole batch, so a restart depends on the batch",
    "spgd-unprojected": "the released code counts the idle steps of a whole batch, so a restart depends on the batch",
}


# From stores to CSV ---------------------------------------------------------------------------------------------------


def lines(store: Store) -> list[Row]:
    """Return a line per finished cell of a store; a cell that was interrupted has none."""
    return [line(run) for run in runs.load(store) if len(run) == run.info.rows]


def line(run: runs.Run) -> Row:
    """Return the line of one cell."""
    info, samples = run.info, run.samples
    names = [info.attack]
    if info.attack not in ATTACKS:  # a plan's own name
        kind = info.identity["attack"]["class"]
        names = [each for each, attack in ATTACKS.items() if type(attack).__name__ == kind] or names
    name, own = min(((each, _own(each, info.parameters)) for each in names), key=lambda pair: len(pair[1]))
    figures: dict[str, float | None] = dict.fromkeys(COLUMNS)
    if info.budget is None:
        figures |= {f"asr_{k}": asr(samples.changes, k) for k in KS} | {"asr_inf": asr(samples.changes)}
        figures |= {"median_l0": median(samples.changes)}
        finite = samples.changes[np.isfinite(samples.changes)]
        figures["mean_l0"] = float(finite.mean()) if len(finite) == len(samples.changes) else math.inf
        if samples.returned is not None:
            figures |= {f"returned_asr_{k}": asr(samples.returned, k) for k in KS[1:]}
            figures |= {"returned_asr_inf": asr(samples.returned), "returned_median_l0": median(samples.returned)}
    else:
        figures["asr_inf"] = float((samples.changes <= info.budget).mean())
    peak = info.provenance.get("peak_memory_device")
    figures |= {
        "kqueries": float((samples.forwards + samples.backwards).mean()) / 1000,
        "seconds": float(samples.seconds.mean()),
        "memory_gb": None if peak is None else peak / GB,
    }
    words = {
        "model": info.model,
        "dataset": info.dataset,
        "attack": name,
        "label": info.attack,
        "unit": info.unit,
        "steps": info.steps,
        "budget": "" if info.budget is None else info.budget,
        "parameters": json.dumps(own, sort_keys=True) if own else "",
        "samples": len(run),
        "rows": info.rows,
        "precision": info.precision,
        "seed": info.seed,
        "version": info.version,
        "device": info.provenance.get("device", ""),
        "torch": info.provenance.get("torch", ""),
        "cell": info.key,
    }
    numbers = {name: "" if value is None else f"{value:.6g}" for name, value in figures.items()}
    return numbers | {name: str(value) for name, value in words.items()}


def _own(attack: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that are not the usual ones of an attack."""
    known = usual().parameters(attack) or {}
    return {name: value for name, value in parameters.items() if name != "steps" and known.get(name) != value}


def write(rows: Iterable[Row], file: io.TextIOBase, columns: Sequence[str] = COLUMNS) -> None:
    """Write lines as CSV."""
    out = csv.DictWriter(file, columns, lineterminator="\n")
    out.writeheader()
    out.writerows(rows)


def read(path: Path) -> list[Row]:
    """Read the lines of a CSV file; none where there is no file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def add(path: Path, rows: Sequence[Row], key: Sequence[str]) -> None:
    """Add lines to a CSV file instead of those with the same key."""
    answered = [[row[name] for name in key] for row in rows]
    before = [row for row in read(path) if [row[name] for name in key] not in answered]
    with path.open("w", encoding="utf-8", newline="") as file:
        write([*before, *rows], file, list(rows[0]))


def finished(path: Path) -> list[Row]:
    """Return the lines of a store, or of a CSV file made from stores elsewhere."""
    if path.suffix != ".csv":
        with Store(path) as store:
            return lines(store)
    found = read(path)
    if found and not set(COLUMNS) <= set(found[0]):
        raise SystemExit(
            f"{path}: has no column {', '.join(set(COLUMNS) - set(found[0]))}; make it from its store again"
        )
    return [row for row in found if row["samples"] == row["rows"]]


def merged(before: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Return lines with new ones in the places of those that answer the same question with no more samples."""
    best: dict[tuple[str, ...], Row] = {}
    for row in (*before, *new):
        key = tuple(row[name] for name in KEY)
        if key not in best or int(row["samples"]) >= int(best[key]["samples"]):
            best[key] = row
    return list(best.values())


# Beside the paper -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """A printed row and the line that answers it; `line` is None where there is none."""

    table: str
    printed: Row
    line: Row | None

    @property
    def returned(self) -> bool:
        """Return whether the paper has the points that the method returned by its own rule."""
        return self.printed["attack"] in RETURNED

    def figures(self) -> list[tuple[str, float, float]]:
        """Return each printed figure's name with ours and the paper's; shares in percent."""
        assert self.line is not None
        if "budget" in self.printed:
            return [("ASR", 100 * float(self.line["asr_inf"]), float(self.printed["asr"]))]
        before = "returned_" if self.returned else ""
        found = [
            (f"ASR{word}", 100 * float(self.line[f"{before}asr_{k}"]), float(self.printed[f"asr_{k}"]))
            for k, word in (("24", "24"), ("50", "50"), ("inf", "∞"))
        ]
        return [*found, ("median", float(self.line[f"{before}median_l0"]), float(self.printed["median_l0"]))]

    def far(self) -> list[str]:
        """Return which figures differ by more than the limits."""
        return [
            name
            for name, ours, theirs in self.figures()
            if ours != theirs and abs(ours - theirs) > (FEATURES if name == "median" else POINTS)
        ]

    def cause(self) -> str:
        """Return why figures differ; nothing where they are close."""
        names = self.far()
        if not names or self.line is None:
            return ""
        n = int(self.line["samples"])
        far = [(ours, theirs) for name, ours, theirs in self.figures() if name in names and name != "median"]
        ends = [wilson(round(ours * n / 100), n) for ours, _ in far]
        chance = [low <= theirs / 100 <= high for (_, theirs), (low, high) in zip(far, ends, strict=True)]
        if "median" not in names and all(chance):
            return f"within the 95 % interval of {n:,} rows"
        return CAUSES.get(self.printed["attack"], "")


def printed(name: str) -> list[Row]:
    """Return a table of the paper."""
    text = resources.files("sigmazero.report").joinpath(f"paper/{name}.csv").read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


def compared(found: Sequence[Row]) -> list[Compared]:
    """Return every row that the paper prints, with the line of the most samples that answers it."""
    best: dict[tuple[str, ...], Row] = {}
    for line in sorted(found, key=lambda row: int(row["samples"])):
        if not line["parameters"]:
            best[_asked(line)] = line
    made = []
    for name in ("minimum_norm", "fixed_budget"):
        for row in printed(name):
            wanted = {"sparse-rs": str(2 * int(row["steps"])), "sparsefool": "20"}.get(row["attack"], row["steps"])
            key = (row["model"], row["attack"], wanted, row.get("budget", ""))
            made.append(Compared(TABLES[row["table_label"]][0], row, best.get(key)))
    return made


def _asked(line: Row) -> tuple[str, ...]:
    return line["model"], line["attack"].removesuffix("-paper"), line["steps"], line["budget"]


# The paper's tables ---------------------------------------------------------------------------------------------------


def everything() -> list[Row]:
    """Return the lines of all files."""
    return [row for name in FILES for row in read(FOLDER / name)]


def answered() -> list[Compared]:
    """Return the printed rows that have a line."""
    return [each for each in compared(everything()) if each.line is not None]


def coverage() -> str:
    """Return how much of the paper is compared, and where it was measured."""
    here, every = answered(), compared([])
    return (
        f"{len(here)} of {len(every)} printed rows (table × model × attack × budget) are compared; "
        f"{len(every) - len(here)} wait for weights ([which](networks.md#what-waits)). Measured {_measured(here)}."
    )


def tables() -> str:
    """Return the paper's tables of which any row is compared."""
    here, parts = answered(), []
    for number in sorted({each.table for each in here}, key=int):
        some = [each for each in here if each.table == number]
        plan = next(plan for table, plan in TABLES.values() if table == number)
        parts += [f"## Table {number}", _command(some, plan), _table(some)]
    return "\n\n".join(parts)


def _measured(some: Iterable[Compared]) -> str:
    """Return how many samples the lines have, and on which devices they were measured."""
    own = [each.line for each in some if each.line is not None]
    counts = " or ".join(f"{n:,}" for n in sorted({int(row["samples"]) for row in own}))
    devices = "; ".join(sorted({f"{row['device']}, torch {row['torch']}" for row in own}))
    return f"on {counts} (n) of MNIST's 10,000 test images ({devices})"


def _command(some: Sequence[Compared], plan: str) -> str:
    models = " ".join(f"--model {name}" for name in sorted({each.printed["model"] for each in some}))
    counts = {int(each.line["samples"]) for each in some if each.line}
    limit = "" if min(counts) == 10_000 else f" --limit {min(counts)}"
    return f"`sigmazero run experiments/{plan}.toml {models} --precision tf32{limit}`"


def _table(some: Sequence[Compared]) -> str:
    """Return a printed table, the budgets of an attack in one row as there."""
    rows: dict[tuple[str, str], list[Compared]] = {}
    for each in some:
        rows.setdefault((each.printed["model"], each.printed["attack"]), []).append(each)
    several = len({each.line["samples"] for each in some if each.line}) > 1
    return markdown([_shown(row, several) for row in rows.values()])


def _shown(row: Sequence[Compared], several: bool) -> Row:
    first = row[0]
    line, there = first.line, first.printed
    assert line is not None
    shown = {"model": there["model"], "attack": there["attack"]}
    if several:
        shown["n"] = f"{int(line['samples']):,}"
    for each in row:
        for name, ours, theirs in each.figures():
            digits = 0 if name == "median" else 1
            shown[f"{name}{each.printed.get('budget', '')}"] = f"{_text(ours, digits)}/{_text(theirs, digits)}"
    odd = any(word in there["note"] for word in ODD)
    k, ending = (there["budget"], "_at_smallest") if "budget" in there else ("", "")
    theirs_text = "" if odd else there[f"kqueries{ending}"]
    shown[f"q{k}"] = f"{float(line['kqueries']):.2f}" + (f"/{theirs_text}" if theirs_text else "")
    return shown


def _text(value: float, digits: int) -> str:
    return "∞" if math.isinf(value) else f"{value:.{digits}f}" if digits or value == int(value) else f"{value:.1f}"


def differences() -> str:
    """Return which rows differ from the paper's, and why."""
    here = answered()
    far = [each for each in here if each.far()]
    causes: dict[str, list[str]] = {}
    for each in far:
        k = f" within {each.printed['budget']}" if "budget" in each.printed else ""
        where = f"{each.printed['attack']}{k}, {each.printed['model']}, Table {each.table} ({', '.join(each.far())})"
        causes.setdefault(each.cause() or "**not known**", []).append(where)
    close = f"{len(here) - len(far)} of {len(here)} rows are within {POINTS:g} points and {FEATURES:g} features"
    lines = [f"- {'; '.join(where)}: {cause}." for cause, where in causes.items()]
    return "\n".join([f"{close} of what is printed. The others:\n", *lines])


def brendel_bethge() -> str:
    """Return what foolbox's attack reaches as the published runs called it, beside ours and what is printed."""
    here, rows = answered(), []
    for theirs in read(FOLDER / "brendel-bethge.csv"):
        key = tuple(theirs[name] for name in ("model", "attack", "steps"))
        each = next(e for e in here if tuple(e.printed[name] for name in ("model", "attack", "steps")) == key)
        assert each.line is not None
        row = {"model": theirs["model"], "attack": theirs["attack"], "N": theirs["steps"]}
        row["printed"] = "/".join(each.printed[name] for name in ("asr_24", "asr_50", "asr_inf", "median_l0"))
        row["foolbox"] = _four(theirs)
        row["n, lost"] = f"{theirs['rows']}, {theirs['lost']}"
        row["ours"] = _four(each.line)
        kept = 1 - float(theirs["expected_lost"])
        shares = (f"{100 * kept * float(each.line[f'asr_{k}']):.1f}" for k in (24, 50, "inf"))
        rows.append(row | {"ours, batches lost": "/".join(shares) if kept < 1 else "–"})
    return markdown(rows)


def _four(row: Row) -> str:
    shares = "/".join(f"{100 * float(row[f'asr_{k}']):.1f}" for k in (24, 50, "inf"))
    return f"{shares}/{_text(float(row['median_l0']), 0)}"


def components() -> str:
    """Return the ablation on networks that everybody can have, beside the paper's, which is of C3 and C4."""
    found = everything()
    ablated = {(row["model"], row["dataset"]) for row in found if row["parameters"] and _switches(row) is not None}
    most: dict[tuple[str, ...], Row] = {}  # the line of the most samples for each network and its components
    for row in sorted(found, key=lambda row: -int(row["samples"])):
        if (row["model"], row["dataset"]) in ablated and row["steps"] == "1000" and (own := _switches(row)):
            most.setdefault((row["model"], *own), row)
    some = sorted(most.values(), key=lambda row: (row["dataset"] != "mnist-500", row["model"]))
    made: dict[tuple[str, ...], Row] = {}
    for row in some:
        line = made.setdefault(tuple(_switches(row) or ()), {})
        shares = (f"{100 * float(row[f'asr_{k}']):.1f}" for k in (10, 50))
        line[row["model"]] = "/".join((*shares, _text(float(row["median_l0"]), 0)))
    for on_there, line in made.items():
        for theirs in printed("ablation_components"):
            if [theirs[name] for name in COMPONENTS.values()] == list(on_there):
                code = PRINTED_AS[theirs["model"]]
                line[f"paper's {code}"] = "/".join(theirs[name] for name in ("asr_10", "asr_50", "median_l0"))
    switched = [name for at, name in enumerate(COMPONENTS.values()) if len({on[at] for on in made}) > 1]
    rows = []
    for on, line in sorted(made.items(), reverse=True):
        words = dict(zip(COMPONENTS.values(), ("yes" if value == "true" else "no" for value in on), strict=True))
        rows.append({name.replace("_", " "): words[name] for name in switched} | line)
    counts = ", ".join(sorted({f"{row['samples']} rows ({row['dataset'].split('-')[0]})" for row in some}))
    return f"ASR10/ASR50/median, {counts}.\n\n{markdown(rows)}"


def _switches(row: Row) -> list[str] | None:
    """Return which components of σ-zero a line had on; None for other attacks and parameters."""
    own = json.loads(row["parameters"] or "{}")
    if row["attack"] != "sigma-zero" or row["unit"] != "feature" or row["budget"] or not set(own) <= set(COMPONENTS):
        return None
    return [str(own.get(name, True)).lower() for name in COMPONENTS]


def algorithm() -> str:
    """Return the table of Algorithm 1 as printed beside the released code."""
    some = [row for row in everything() if row["attack"] == "sigma-zero" and not row["budget"]]
    rows: list[Row] = []
    more: list[str] = []
    for mine in some:
        if mine["parameters"] != '{"optimizer": "sgd", "order": "paper"}':
            continue
        same = ("model", "dataset", "unit", "steps", "samples")
        theirs = next(row for row in some if not row["parameters"] and all(row[c] == mine[c] for c in same))
        for kind, row in (("released", theirs), ("printed", mine)):
            shares = {f"ASR{k}": f"{100 * float(row[f'asr_{k}']):.1f}" for k in (*KS, "inf")}
            figures = {"median l0": _text(float(row["median_l0"]), 0), "mean l0": _text(float(row["mean_l0"]), 2)}
            rows.append({"model": row["model"], "n": row["samples"], "Algorithm 1 as": kind, **shares, **figures})
        name = "median_l0" if math.isinf(float(mine["mean_l0"])) else "mean_l0"
        by = f"{100 * (float(mine[name]) / float(theirs[name]) - 1):.0f} % in the {name.removesuffix('_l0')}"
        lost = round((1 - float(mine["asr_inf"])) * int(mine["samples"]))
        more.append(f"{mine['model']} {by}" + (f", and {lost:,} samples are not fooled" if lost else ""))
    heading = f"As printed the algorithm needs more changes: {'; '.join(more)}."
    return f"{heading}\n\n{markdown(rows).replace('ASRinf', 'ASR∞')}"


# Networks that the paper does not have --------------------------------------------------------------------------------


def networks() -> str:
    """Return a table for each network that the paper does not have."""
    known = {each.printed["model"] for each in compared([])}
    some = [row for row in read(FOLDER / "networks.csv") if row["model"] not in known]
    parts = [f"Measured on {_devices(some)}, which several plans shared."]
    for model in dict.fromkeys(row["model"] for row in some):
        own = [row for row in some if row["model"] == model]
        title, plan = NETWORKS.get(model, (model, "networks"))
        counts = " or ".join(sorted({row["samples"] for row in own}, key=int))
        parts += [
            f"## {title}, {counts} samples",
            f"`sigmazero run experiments/{plan}.toml --model {model} --precision tf32`",
        ]
        for limited in (False, True):
            if rows := [_network_row(row) for row in own if bool(row["budget"]) == limited]:
                parts.append(markdown(rows))
    return "\n\n".join(parts)


def _devices(some: Sequence[Row]) -> str:
    return "; ".join(sorted({f"{row['device']}, torch {row['torch']}" for row in some}))


def _network_row(row: Row) -> Row:
    shown = {"attack": row["label"], "unit": row["unit"]}
    if row["budget"]:
        shown |= {"k": row["budget"], "ASR": f"{100 * float(row['asr_inf']):.1f}"}
    else:
        shown |= {f"ASR{'∞' if k == 'inf' else k}": f"{100 * float(row[f'asr_{k}']):.1f}" for k in (10, 24, "inf")}
        shown |= {"median": _text(float(row["median_l0"]), 0), "mean": _text(float(row["mean_l0"]), 2)}
    return shown | {"q": f"{float(row['kqueries']):.2f}"}


def waiting() -> str:
    """Return which printed rows have no line, by table."""
    every = compared(everything())
    rows = []
    for number in sorted({each.table for each in every}, key=int):
        some = [each for each in every if each.table == number and each.line is None]
        if some:
            models = {each.printed["model"] for each in some}
            rows.append({"table": number, "rows": str(len(some)), "models": _spans(models)})
    total = sum(int(row["rows"]) for row in rows)
    return f"{total} printed rows wait for weights.\n\n{markdown(rows)}"


def _spans(models: Iterable[str]) -> str:
    """Return names of models with ranges.

    >>> _spans(["C1", "C3", "C2", "I5"])
    'C1 to C3, I5'
    """
    found: list[list[tuple[str, int]]] = []
    for letter, number in sorted((name[0], int(name[1:])) for name in models):
        if found and found[-1][-1] == (letter, number - 1):
            found[-1].append((letter, number))
        else:
            found.append([(letter, number)])
    ends = [[f"{letter}{number}" for letter, number in (run[0], run[-1])[: len(run)]] for run in found]
    return ", ".join(" to ".join(each) for each in ends)


# Other comparisons ----------------------------------------------------------------------------------------------------


def stronger() -> str:
    """Return the comparison of σ-swap with σ-zero."""
    found = read(FOLDER / "stronger.csv")
    lines: dict[str, Row] = {}
    for row in sorted(found, key=lambda row: (row["goal"] == "targeted", row["network"], int(row["queries"]))):
        name = _title(row["network"]) + (", with a target" if row["goal"] == "targeted" else "")
        percent = f"{row['percent']} % [{row['low']}, {row['high']}]".replace("-", "−")
        line = lines.setdefault(name, {"queries": name})
        line[row["queries"]] = f"{row['sigma_zero']} → {row['sigma_swap']}, {percent}"
    counts = ", ".join(dict.fromkeys(f"{_title(row['network'])} {int(row['rows']):,}" for row in found))
    seeds_there = sorted({row["seeds"] for row in found}, key=int)
    spread = seeds_there[:: max(1, len(seeds_there) - 1)]
    devices = "; ".join(dict.fromkeys(f"{row['device']}, torch {row['torch']}, {row['precision']}" for row in found))
    return (
        f"Mean l0 of σ-zero → σ-swap over all samples ({counts}) and {' to '.join(spread)} seeds of σ-swap (σ-zero "
        "draws nothing), and the difference with its 95 % bootstrap interval, paired by sample. "
        f"{devices}; `sigmazero run experiments/stronger.toml --precision tf32` repeats it, "
        f"[stronger.csv](stronger.csv) has the cells.\n\n{markdown(list(lines.values()))}"
    )


def _title(network: str) -> str:
    return NETWORKS[network][0].split(",")[0] if network in NETWORKS else network


def attackbench() -> str:
    """Return the table of AttackBench."""
    rows = [
        {
            "network": _title(row["network"]),
            "n": row["rows"],
            "attack": row["attack"],
            "ASR": f"{100 * float(row['asr']):.0f}",
            "median": row["median_l0"],
            "mean": row["mean_l0"],
            "optimality": f"{float(row['optimality']):.3f}",
            "forwards, backwards": f"{float(row['forwards']):.0f}, {float(row['backwards']):.0f}",
        }
        for row in read(FOLDER / "attackbench.csv")
    ]
    return markdown(rows)


def _without(*names: str) -> Callable[[Sequence[Row]], list[Row]]:
    """Return a function that leaves out columns whose first word is one of these."""
    return lambda found: [
        {name: value or "–" for name, value in row.items() if name.split()[0] not in names} for row in found
    ]


def _formats(found: Sequence[Row]) -> list[Row]:
    """Return a line per network and attack, with what is shown at each number of queries."""
    queries = sorted({row["queries"] for row in found}, key=int)
    there = {(row["network"], row["attack"], row["queries"]): row for row in found}
    made = []
    for network, attack in sorted({key[:2] for key in there}):
        line = {"network": network, "attack": attack.replace("sigma", "σ")}
        for many in queries:
            row = there.get((network, attack, many))
            ends = [f"{float(row[name]):+.1f}".replace("-", "−") for name in ("percent", "low", "high")] if row else []
            line[many] = "{:.1f}, {} [{}, {}]".format(float(row["default"]), *ends) if row else "–"
        made.append(line)
    return made


def _copies(found: Sequence[Row]) -> list[Row]:
    """Return a line per network, with the four copies of a number format in one text."""
    kinds = ("as it is", "folded", "last", "folded last")
    return [
        {"network": row["network"], "rows": row["rows"]}
        | {name: "/".join(row[f"{name} {kind}"] or "–" for kind in kinds) for name in ("tf32", "fp32", "bf16")}
        for row in found
    ]


def _by_queries(found: Sequence[Row]) -> list[Row]:
    """Return a line per attack that is not a mere trial, with the mean, the median and the samples lost."""
    queries = sorted({row["queries"] for row in found}, key=int)
    shown = {(row["attack"], row["queries"]): _means(row) for row in found}
    return [
        {"attack": name} | {q: shown.get((name, q), "–") for q in queries}
        for name in sorted({row["attack"] for row in found})
        if name in SHOWN
    ]


def _means(row: Row) -> str:
    lost = f" ({row['lost']} lost)" if row["lost"] != "0" else ""
    return f"{row['mean']} / {row['median']}{lost}"


def shown(name: str, change: Callable[[Sequence[Row]], list[Row]]) -> Callable[[], str]:
    """Return a function that makes the table of a file, after a change of its lines."""
    return lambda: markdown(change(read(FOLDER / name)))


SHOWN = ("ladder, momentum 0.8", "ladder 40 %, then the search", "saliency", "sigma-swap", "sigma-zero")
PAGES = ("paper.md", "networks.md", "numbers.md", "stronger.md", "other-libraries.md")
PARTS: dict[str, Callable[[], str]] = {  # by the mark before them
    **{"coverage": coverage, "tables": tables, "differences": differences, "brendel-bethge.csv": brendel_bethge},
    **{"components": components, "algorithm": algorithm, "networks": networks, "waiting": waiting},
    **{"stronger.csv": stronger, "attackbench.csv": attackbench},
    "formats.csv": shown("formats.csv", _formats),
    "copies.csv": shown("copies.csv", _copies),
    "calls.csv": shown("calls.csv", _without("commit")),
    "imagenet-few-queries.csv": shown("imagenet-few-queries.csv", _by_queries),
    "few-queries.csv": shown("few-queries.csv", _without("median", "rows")),
}


def filled(text: str, parts: Mapping[str, Callable[[], str]]) -> str:
    """Return a page with each part between its mark and the next `<!-- end -->` made anew."""

    def part(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n{parts[found[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- (.+?) -->\n.*?<!-- end -->", part, text, flags=re.DOTALL)


def main(words: Sequence[str] | None = None) -> None:
    """Write a CSV file or the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    figures = kinds.add_parser("csv", help="the figures of stores, a line per finished cell")
    figures.add_argument("--add", action="store_true", help="keep the lines of the file that are not answered anew")
    kinds.add_parser("page", help="the made parts of docs/evidence from the CSV files")
    compare = kinds.add_parser("stronger", help="σ-swap against σ-zero over seeds")
    for made in (figures, compare):
        made.add_argument("stores", nargs="+", type=Path, help="stores, or CSV files that were made from stores")
        made.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(words)
    if asked.kind == "page":
        for name in PAGES:
            text = filled((FOLDER / name).read_text(encoding="utf-8"), PARTS)
            (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote {', '.join(PAGES)}\n")
        return
    columns: Sequence[str] = COLUMNS
    if asked.kind == "stronger":
        rows, columns = seeds.lines(asked.stores), seeds.COLUMNS
    else:
        rows = merged(read(asked.out) if asked.add else [], [row for path in asked.stores for row in finished(path)])
    with asked.out.open("w", encoding="utf-8", newline="") as file:
        write(rows, file, columns)
    sys.stdout.write(f"wrote {len(rows)} lines to {asked.out.name}\n")


if __name__ == "__main__":
    main()
