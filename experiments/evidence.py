"""Keep the figures of stores as CSV files in docs/evidence, and make the pages that set the paper's beside them.

    python -m experiments.evidence csv runs/minimum-norm-100.db there.csv --add --out docs/evidence/mnist.csv
    python -m experiments.evidence stronger runs/stronger.db --out docs/evidence/stronger.csv
    python -m experiments.evidence page

A CSV file has a line per finished cell, with the key of the cell, so whoever runs the same plan can compare. Pages are
made from the files alone, and a test says when one is old. The figures of the paper are those of `sigmazero.report`.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
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
COMPONENTS_TEXT = (
    "The paper has C3 and C4 (printed as C10 and C5). The order is the paper's, but on M2 a fixed threshold does as "
    "well as the adaptive one. Without projection about 20 % of MNIST's features change, not nearly all: most of a "
    "digit is background at the lower bound, and a gradient that points outwards leaves it there."
)
FIGURES = {  # what ours show, beside the paper's words
    "1": "as described: the path crosses the boundary and comes back along one axis; the digit's images have 542, 45 "
    "and 25 changes",
    "2 and 6 (M2)": "σ-zero leads from 4 changes on; then bb and bb-dataset, much nearer than printed (above), "
    "fmn, pdpgd, ead, vfga, sparsefool",
    "3": "M1, 64 rows: up to σ = 0.1 neither matters (medians from 16 to 17.5), as in the paper; σ = 1 is worse, and "
    "fails with a small τ0",
    "4": "all t up to 0.1 are alike, as in the paper; t = 1 costs 2 changes in the median on M1",
    "5": "M1: σ-zero leads from k = 20 on, level with sparse-rs below. M2: sparse-rs leads up to k = 30, by 22 points "
    "at k = 5. The paper has σ-zero ahead at every k on C3",
    "8 (M2)": "as described: fmn and vfga change the same regions, ead many values by little",
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
        shares = {name: (ours, theirs) for name, ours, theirs in self.figures() if name != "median"}
        chance = all(
            name in shares
            and wilson(round(shares[name][0] * n / 100), n)[0] <= shares[name][1] / 100
            and shares[name][1] / 100 <= wilson(round(shares[name][0] * n / 100), n)[1]
            for name in names
        )
        return f"within the 95 % interval of {n:,} rows" if chance else CAUSES.get(self.printed["attack"], "")


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


# The page -------------------------------------------------------------------------------------------------------------


def everything() -> list[Row]:
    """Return the lines of all files."""
    return [row for name in FILES for row in read(FOLDER / name)]


def page() -> str:
    """Return docs/evidence/paper.md."""
    found = everything()
    every = compared(found)
    here = [each for each in every if each.line is not None]
    parts = [
        "# The paper's tables, ours beside them\n",
        f"{len(here)} of {len(every)} printed rows (table × model × attack × budget) are compared; "
        f"{len(every) - len(here)} wait for weights ([which](networks.md#what-waits)). Every table is one command. "
        f"Figures are ours/the paper's, then ours less the paper's, {_measured(here)}. Queries (q, in thousands) and "
        "seconds (s) are per sample; ours count the clean check and the verification. Several plans shared the device, "
        "which costs seconds. [mnist.csv](mnist.csv) has the key of every cell.\n",
    ]
    for number in sorted({each.table for each in here}, key=int):
        some = [each for each in here if each.table == number]
        plan = next(plan for table, plan in TABLES.values() if table == number)
        parts += [f"## Table {number}\n", _command(some, plan), _table(some)]
    parts += [*_differences(here), *_brendel_bethge(here), *_components(found), *_algorithm(found), *_figures()]
    return "\n".join(parts)


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
    return f"`sigmazero run experiments/{plan}.toml {models} --precision tf32{limit}`\n"


def _table(some: Sequence[Compared]) -> str:
    """Return a printed table, the budgets of an attack in one row as there."""
    rows: dict[tuple[str, str], list[Compared]] = {}
    for each in some:
        rows.setdefault((each.printed["model"], each.printed["attack"]), []).append(each)
    several = len({each.line["samples"] for each in some if each.line}) > 1
    return markdown([_shown(row, several) for row in rows.values()]) + "\n"


def _shown(row: Sequence[Compared], several: bool) -> Row:
    first = row[0]
    line, there = first.line, first.printed
    assert line is not None
    shown = {"model": there["model"], "attack": there["attack"]}
    if several:
        shown["n"] = f"{int(line['samples']):,}"
    less = []
    for each in row:
        for name, ours, theirs in each.figures():
            digits = 0 if name == "median" else 1
            shown[f"{name}{each.printed.get('budget', '')}"] = f"{_text(ours, digits)}/{_text(theirs, digits)}"
            less.append(_less(ours, theirs, digits))
    shown["ours less the paper's"] = ", ".join(less)
    odd = any(word in there["note"] for word in ODD)
    k, ending = (there["budget"], "_at_smallest") if "budget" in there else ("", "")
    for heading, name, digits in (("q", "kqueries", 2), ("s", "seconds", 3)):
        theirs_text = "" if odd else there[f"{name}{ending}"]
        shown[heading + k] = f"{float(line[name]):.{digits}f}" + (f"/{theirs_text}" if theirs_text else "")
    memory = f"{float(line['memory_gb']):.2f}" if line["memory_gb"] else "–"
    shown["GB"] = f"{memory}/{there['vram_gb'] or '–'}"
    return shown


def _text(value: float, digits: int) -> str:
    return "∞" if math.isinf(value) else f"{value:.{digits}f}" if digits or value == int(value) else f"{value:.1f}"


def _less(ours: float, theirs: float, digits: int) -> str:
    if ours == theirs or abs(ours - theirs) < 0.5 * 10**-digits:
        return "0"
    return "∞" if math.isinf(ours - theirs) else f"{ours - theirs:+.{digits}f}".replace("-", "−")


def _differences(here: Sequence[Compared]) -> list[str]:
    far = [each for each in here if each.far()]
    causes: dict[str, list[str]] = {}
    for each in far:
        k = f" within {each.printed['budget']}" if "budget" in each.printed else ""
        where = f"{each.printed['attack']}{k}, {each.printed['model']}, Table {each.table} ({', '.join(each.far())})"
        causes.setdefault(each.cause() or "**not known**", []).append(where)
    return [
        "## Differences and their causes\n",
        f"{len(here) - len(far)} of {len(here)} rows are within {POINTS:g} points and {FEATURES:g} features of what is "
        "printed. The others:\n",
        *(f"- {'; '.join(where)}: {cause}." for cause, where in causes.items()),
        "",
    ]


def _brendel_bethge(here: Sequence[Compared]) -> list[str]:
    """Return what foolbox's attack reaches as the published runs called it, beside ours and what is printed."""
    rows: list[Row] = []
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
        row["ours, batches lost"] = (
            "/".join(f"{100 * kept * float(each.line[f'asr_{k}']):.1f}" for k in (24, 50, "inf")) if kept < 1 else "–"
        )
        rows.append(row)
    if not rows:
        return []
    return [
        "## Brendel & Bethge as published\n",
        "`python -m experiments.brendel_bethge M2 bb --steps 100 --out docs/evidence/brendel-bethge.csv`\n\n"
        "foolbox 3.3.4 attacks batches of 32 samples. If one sample finds no starting point, the attack ends for its "
        "batch, and all 32 samples count as not fooled. Figures are ASR24/ASR50/ASR∞/median. *n, lost* is the number "
        "of our rows, and how many of them were in lost batches. The last column is ours if as many batches are lost "
        "as expected. M2 takes nearly all noise for an 8, so an 8 may find no start in 1,000 draws. Table 1 prints "
        "100 % for M2, so no batch was lost there.\n",
        markdown(rows) + "\n",
    ]


def _four(row: Row) -> str:
    shares = "/".join(f"{100 * float(row[f'asr_{k}']):.1f}" for k in (24, 50, "inf"))
    return f"{shares}/{_text(float(row['median_l0']), 0)}"


def _components(found: Sequence[Row]) -> list[str]:
    """Return the ablation on networks that everybody can have, beside the paper's, which is of C3 and C4."""
    ablated = {(row["model"], row["dataset"]) for row in found if row["parameters"] and _switches(row) is not None}
    most: dict[tuple[str, ...], Row] = {}  # the line of the most samples for each network and its components
    for row in sorted(found, key=lambda row: -int(row["samples"])):
        if (row["model"], row["dataset"]) in ablated and row["steps"] == "1000" and (own := _switches(row)):
            most.setdefault((row["model"], *own), row)
    some = sorted(most.values(), key=lambda row: (row["dataset"] != "mnist-500", row["model"]))
    if not some:
        return []
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
    return [
        "## Table 2, on networks that everybody can have\n",
        "`sigmazero run experiments/ablation-components.toml --precision tf32`\n\n"
        f"ASR10/ASR50/median, {counts}. {COMPONENTS_TEXT}\n",
        markdown(rows) + "\n",
    ]


def _switches(row: Row) -> list[str] | None:
    """Return which components of σ-zero a line had on; None for other attacks and parameters."""
    own = json.loads(row["parameters"] or "{}")
    if row["attack"] != "sigma-zero" or row["unit"] != "feature" or row["budget"] or not set(own) <= set(COMPONENTS):
        return None
    return [str(own.get(name, True)).lower() for name in COMPONENTS]


def _algorithm(found: Sequence[Row]) -> list[str]:
    """Return the table of Algorithm 1 as printed beside the released code."""
    some = [row for row in found if row["attack"] == "sigma-zero" and not row["budget"]]
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
    if not rows:
        return []
    return [
        "## Algorithm 1 as printed\n",
        "`sigmazero run experiments/algorithm-1.toml --precision tf32`\n\nThe paper prints the algorithm without "
        'Adam, and projects with the initial threshold first (`order="paper", optimizer="sgd"`). `sigma-zero` is the '
        "released code, which made the published figures and has Adam. As printed the algorithm needs more changes: "
        f"{'; '.join(more)}.\n",
        markdown(rows).replace("ASRinf", "ASR∞") + "\n",
    ]


def _figures() -> list[str]:
    return [
        "## Figures\n",
        "The commands are in [reproducing](../reproducing.md#the-figures). In figures 3 to 5 M1 and M2 stand in for "
        "networks whose weights not everybody can have; [figures.csv](figures.csv) has the points of figure 5.\n",
        markdown([{"figure": name, "ours": text} for name, text in FIGURES.items()]) + "\n",
    ]


# Networks that the paper does not have --------------------------------------------------------------------------------


def networks() -> str:
    """Return docs/evidence/networks.md."""
    known = {each.printed["model"] for each in compared([])}
    some = [row for row in read(FOLDER / "networks.csv") if row["model"] not in known]
    parts = [
        "# Networks that the paper does not have\n",
        "Most of the paper's networks need weights that not everybody can have. These rows are of other networks, "
        "for which the paper prints nothing. ASR, median and mean count features, or pixels with all their channels. "
        "q is thousands of queries per sample. [networks.csv](networks.csv) has the key of every cell.\n",
        f"Measured on {_devices(some)}, which several plans shared.\n",
    ]
    for model in dict.fromkeys(row["model"] for row in some):
        own = [row for row in some if row["model"] == model]
        title, plan = NETWORKS.get(model, (model, "networks"))
        counts = " or ".join(sorted({row["samples"] for row in own}, key=int))
        parts += [
            f"## {title}, {counts} samples\n",
            f"`sigmazero run experiments/{plan}.toml --model {model} --precision tf32`\n",
        ]
        free, within = ([row for row in own if bool(row["budget"]) == limited] for limited in (False, True))
        for part, shape in ((free, _network_row), (within, _budget_row)):
            parts += [markdown([shape(row) for row in part]) + "\n"] if part else []
    return "\n".join([*parts, *_waiting()])


def _devices(some: Sequence[Row]) -> str:
    return "; ".join(sorted({f"{row['device']}, torch {row['torch']}" for row in some}))


def _network_row(row: Row) -> Row:
    shares = {f"ASR{word}": f"{100 * float(row[f'asr_{k}']):.1f}" for k, word in ((10, 10), (24, 24), ("inf", "∞"))}
    means = {"median": _text(float(row["median_l0"]), 0), "mean": _text(float(row["mean_l0"]), 2)}
    cost = {"q": f"{float(row['kqueries']):.2f}", "s": f"{float(row['seconds']):.3f}"}
    return {"attack": row["label"], "steps": row["steps"], "unit": row["unit"], **shares, **means, **cost}


def _budget_row(row: Row) -> Row:
    share = {"ASR": f"{100 * float(row['asr_inf']):.1f}"}
    cost = {"q": f"{float(row['kqueries']):.2f}", "s": f"{float(row['seconds']):.3f}"}
    return {"attack": row["label"], "steps": row["steps"], "unit": row["unit"], "k": row["budget"], **share, **cost}


def _waiting() -> list[str]:
    """Return which printed rows have no line, by table."""
    every = compared(everything())
    rows = []
    for number in sorted({each.table for each in every}, key=int):
        some = [each for each in every if each.table == number and each.line is None]
        if some:
            models = ", ".join(
                sorted({each.printed["model"] for each in some}, key=lambda name: (name[0], int(name[1:])))
            )
            rows.append({"table": number, "rows": str(len(some)), "models": models})
    return [
        "## What waits\n",
        f"{sum(int(row['rows']) for row in rows)} printed rows wait for weights ([where they are](../models.md)), "
        "those of I1 to I8 for ImageNet's pictures too. The plans run them as soon as the files are there.\n",
        markdown(rows) + "\n",
    ]


# Tables in pages that are written by hand -----------------------------------------------------------------------------


def filled(name: str, source: str, make: Callable[[Sequence[Row]], str]) -> str:
    """Return a page with the text between its two marks made from a CSV file; the page as it is where there is none."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    found = read(FOLDER / source)
    before, start, rest = text.partition(f"<!-- {source} -->\n")
    _, end, after = rest.partition("<!-- end -->\n")
    return before + start + make(found) + end + after if found and end else text


def stronger(found: Sequence[Row]) -> str:
    """Return the comparison of σ-swap with σ-zero in docs/evidence/stronger.md."""
    rows = [
        {
            "network": _title(row["network"]) + (", with a target" if row["goal"] == "targeted" else ""),
            "queries": row["queries"],
            "σ-zero → σ-swap": f"{row['sigma_zero']} → {row['sigma_swap']}",
            "difference": f"{row['percent']} % [{row['low']}, {row['high']}]".replace("-", "−"),
            "ASR10": f"{row['asr_10_sigma_zero']} → {row['asr_10_sigma_swap']}",
        }
        for row in sorted(found, key=lambda row: (row["goal"] == "targeted", row["network"], int(row["queries"])))
    ]
    counts = ", ".join(dict.fromkeys(f"{_title(row['network'])} {int(row['rows']):,}" for row in found))
    seeds_there = sorted({row["seeds"] for row in found}, key=int)
    devices = "; ".join(dict.fromkeys(f"{row['device']}, torch {row['torch']}, {row['precision']}" for row in found))
    return (
        f"Mean l0 of all samples ({counts}) and {' to '.join(seeds_there[:: max(1, len(seeds_there) - 1)])} seeds of "
        "σ-swap (σ-zero draws nothing), and the difference with its 95 % bootstrap interval, paired by sample. "
        f"{devices}; `sigmazero run experiments/stronger.toml --precision tf32` repeats it, "
        f"[stronger.csv](stronger.csv) has the cells.\n\n{markdown(rows)}\n"
    )


def _title(network: str) -> str:
    return NETWORKS[network][0].split(",")[0] if network in NETWORKS else network


def attackbench(found: Sequence[Row]) -> str:
    """Return the table of AttackBench in docs/evidence/other-libraries.md."""
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
        for row in found
    ]
    library, limit = found[0]["library"], found[0]["limit"]
    return (
        f"attackbenchlib {library}, rows drawn as it draws them (CIFAR-10: out of 1,000 drawn, those among the first "
        f"2,000 images), its limit of {limit} queries, batches of one "
        "([attackbench.csv](attackbench.csv), `python -m experiments.attackbench M1 mnist`). The library carries no "
        "pool of distances for its optimality but downloads one; here the pool is the three attacks of each "
        f"network.\n\n{markdown(rows)}\n"
    )


# The second page ------------------------------------------------------------------------------------------------------


def measured() -> str:
    """Return docs/evidence/numbers.md."""
    parts = [
        "# Number formats, copies, few queries\n",
        "Measured on one NVIDIA H200 with torch 2.11. Made from the CSV files beside it by "
        "`python -m experiments.evidence page`.\n",
    ]
    for heading, name, shape, text in MEASURED:
        parts += [f"## {heading}\n", f"{text} ([{name}]({name}))\n", markdown(shape(read(FOLDER / name))) + "\n"]
    return "\n".join(parts)


def _without(*names: str) -> Callable[[Sequence[Row]], list[Row]]:
    """Return a function that leaves out columns whose first word is one of these."""
    return lambda found: [
        {name: value or "–" for name, value in row.items() if name.split()[0] not in names} for row in found
    ]


def _formats(found: Sequence[Row]) -> list[Row]:
    """Return a line per network and number of queries."""
    there = {(row["network"], int(row["queries"]), row["attack"]): row for row in found}
    made = []
    for network, queries in sorted({key[:2] for key in there}):
        line = {"network": network, "queries": str(queries)}
        for attack, name in (("sigma-swap", "σ-swap"), ("sigma-zero", "σ-zero")):
            row = there.get((network, queries, attack))
            line[f"{name} strict"], line[f"{name} default"] = (row["strict"], row["default"]) if row else ("–", "–")
            line[f"{name} %"] = f"{row['percent']} [{row['low']}, {row['high']}]" if row else "–"
        made.append(line)
    return made


def _by_queries(found: Sequence[Row]) -> list[Row]:
    """Return a line per attack, with the mean, the median and the samples lost at each number of queries."""
    queries = sorted({row["queries"] for row in found}, key=int)
    shown = {(row["attack"], row["queries"]): _means(row) for row in found}
    return [
        {"attack": name} | {q: shown.get((name, q), "–") for q in queries}
        for name in sorted({row["attack"] for row in found})
    ]


def _means(row: Row) -> str:
    lost = f" ({row['lost']} lost)" if row["lost"] != "0" else ""
    return f"{row['mean']} / {row['median']}{lost}"


# Heading, file, how its lines become those of the table, and what is shown.
MEASURED: tuple[tuple[str, str, Callable[[Sequence[Row]], list[Row]], str], ...] = (
    (
        "A default process and a strict one",
        "formats.csv",
        _formats,
        "Mean l0 with TF32 off (strict) and with torch's defaults (convolutions in TF32), and the difference "
        "in percent with the 95 % bootstrap interval, paired by sample. σ-swap, version 7: mean over three "
        "seeds from 50 to 200 queries (ResNet-50: one); σ-zero: one seed, queries / 2 steps and its checks besides. "
        "The first 1,000 rows of MNIST, 1,000 (ResNet-20) and 256 (PreActResNet-18) of CIFAR-10, 49 photos that "
        "the ResNet-50 classifies correctly. A sample that was not fooled counts as all its features. A "
        "default process checks in two formats: of few queries it has three fewer to search with "
        "([decision](../decisions.md)).",
    ),
    (
        "Copies of a network",
        "copies.csv",
        _without("commit"),
        "Milliseconds of a captured forward and backward pass: as it is, with batch norms folded, with channels "
        "last, with both; random weights except SmallCNN. Folded with channels last is the fastest in TF32 and bf16, "
        "and slower in strict fp32 on large networks; with batch norms left channels last can be slower. So channels "
        "last are used where norms were folded and products are not strict (`run.search_model`).",
    ),
    (
        "Whole calls at 224 × 224",
        "calls.csv",
        _without("commit"),
        "σ-zero: seconds of the first and the second call, peak memory and forward passes; torchvision's networks with "
        "random weights. \"adv-lib's step\" is a plain loop that does what a step of adv-lib's σ-zero does. ViT-B/16 "
        "spends its time in matrix products, which torch computes in fp32 by default.",
    ),
    (
        "ImageNet, few queries",
        "imagenet-few-queries.csv",
        _by_queries,
        "Mean / median l0 by number of queries: ResNet-50, the 49 photos that it classifies correctly, default "
        "process, one seed. A ladder makes whole choices, their number by bisection; the one with momentum 0.8 is "
        "version 7 of σ-swap below 75 queries. Photos that were not fooled are lost, and left out of a mean.",
    ),
    (
        "Small inputs, few queries",
        "few-queries.csv",
        _without("median", "rows"),
        "Mean l0 by `python -m benchmarks.few_queries`, strict fp32 on a processor, 32 rows (ResNet-20) and 50, "
        "version 8 of σ-swap. A sample that was not fooled counts as all its features. The area is that under the "
        "curve, over the logarithm of the queries. ![Mean l0 over queries](few-queries.png)",
    ),
)
PAGES: dict[str, Callable[[], str]] = {
    "paper.md": page,
    "networks.md": networks,
    "numbers.md": measured,
    "stronger.md": lambda: filled("stronger.md", "stronger.csv", stronger),
    "other-libraries.md": lambda: filled("other-libraries.md", "attackbench.csv", attackbench),
}


def main(words: Sequence[str] | None = None) -> None:
    """Write a CSV file or the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    figures = kinds.add_parser("csv", help="the figures of stores, a line per finished cell")
    figures.add_argument("--add", action="store_true", help="keep the lines of the file that are not answered anew")
    kinds.add_parser("page", help="the pages of docs/evidence from the CSV files")
    compare = kinds.add_parser("stronger", help="σ-swap against σ-zero over seeds")
    for made in (figures, compare):
        made.add_argument("stores", nargs="+", type=Path, help="stores, or CSV files that were made from stores")
        made.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(words)
    if asked.kind == "page":
        for name, make in PAGES.items():
            (FOLDER / name).write_text(make(), encoding="utf-8")
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
