"""Keep the figures of stores as CSV files in docs/evidence, and make the page that sets the paper's beside them.

    python -m experiments.evidence csv runs/minimum-norm-100.db runs/fixed-budget-1000.db --out docs/evidence/mnist.csv
    python -m experiments.evidence page

A CSV file has a line per cell, with the key of the cell, so whoever runs the same plan can compare. The page is made
from the files alone, and a test says when it is old. The figures of the paper are those of `sigmazero.report`.
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

import numpy as np

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
FILES = ("mnist.csv",)
Row = dict[str, str]
KS = (10, 24, 50)
COLUMNS = (
    *("model", "dataset", "attack", "label", "steps", "budget", "parameters", "samples", "rows"),
    *(f"asr_{k}" for k in (*KS, "inf")),
    *("median_l0", "mean_l0", "returned_asr_24", "returned_asr_50", "returned_asr_inf", "returned_median_l0"),
    *("kqueries", "seconds", "memory_gb", "precision", "seed", "version", "device", "torch", "cell"),
)
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
RETURNED = ("ead", "sparsefool")  # the paper has the points that these return by their own rule
POINTS, FEATURES = 3.0, 2.0  # larger differences need a cause
CAUSES = {
    "pdpgd": "adv-lib 0.2.8 gives our figure on the same rows; that code does not compute what is printed",
    "ead": "the reference ends a round for the whole batch by the summed loss; here each sample ends its own",
    "vfga": "100 steps change at most 100 features; the paper prints the success of 1000, and on M1 the ASR24 of M2",
    "sparsefool": "torchattacks 3.5.1 gives our figure on the same rows",
    "bb": "in the published runs one sample without a starting point ended the other 31 of its batch; here it ends "
    "alone. Besides, foolbox's solver leaves the trust region where the boundary lies beyond it",
    "bb-dataset": "as for bb; besides, the published runs looked for starting points in the current batch only",
    "spgd-projected": "the released code counts the idle steps of a whole batch, so a restart depends on the batch",
    "spgd-unprojected": "the released code counts the idle steps of a whole batch, so a restart depends on the batch",
}


# From stores to CSV ---------------------------------------------------------------------------------------------------


def lines(store: Store) -> list[Row]:
    """Return a line per cell of a store."""
    return [_line(run) for run in runs.load(store)]


def _line(run: runs.Run) -> Row:
    info, samples = run.info, run.samples
    name = info.attack
    if name not in ATTACKS:  # a plan's own name
        kind = info.identity["attack"]["class"]
        name = next(each for each, attack in ATTACKS.items() if type(attack).__name__ == kind)
    known = usual().parameters(name) or {}
    own = {k: v for k, v in info.parameters.items() if k != "steps" and known.get(k) != v}
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


def write(rows: Iterable[Row], file: io.TextIOBase) -> None:
    """Write lines as CSV."""
    out = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    out.writeheader()
    out.writerows(rows)


def read(path: Path) -> list[Row]:
    """Read the lines of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


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


def page() -> str:
    """Return docs/evidence/paper.md."""
    found = [row for name in FILES for row in read(FOLDER / name)]
    every = compared(found)
    here = [each for each in every if each.line is not None]
    own = [each for each in every if each.printed["model"] in ("M1", "M2")]
    waiting = sum(each.line is None for each in every if each not in own)
    numbers = sorted({each.table for each in here}, key=int)
    counts = ", ".join(f"{n:,}" for n in sorted({int(row["samples"]) for row in found}))
    devices = "; ".join(sorted({f"{row['device']}, torch {row['torch']}" for row in found}))
    parts = [
        "# The paper's tables, ours beside them\n",
        f"{len(here)} of {len(every)} printed rows (table × model × attack × budget) are compared. {len(own)} rows "
        f"need M1 and M2 alone; {waiting} wait for weights or pictures that not everybody has "
        "([which](../models.md)).\n",
        f"Figures are ours / the paper's, on {counts} of MNIST's 10,000 test images, measured on {devices}. Queries "
        "(q, in thousands) and seconds (s) are per sample. Ours count the clean check and the verification; seconds "
        f"and memory are those of another device. Made from {' and '.join(f'[{name}]({name})' for name in FILES)}, "
        "which has the key of every cell, by `python -m experiments.evidence page`.\n",
    ]
    for number in numbers:
        some = [each for each in here if each.table == number]
        plan = next(plan for table, plan in TABLES.values() if table == number)
        parts += [f"## Table {number}\n", _command(some, plan), _table(some)]
    parts += _differences(here)
    parts += _components(found)
    parts += _algorithm(found)
    return "\n".join(parts)


def _command(some: Sequence[Compared], plan: str) -> str:
    models = " ".join(f"--model {name}" for name in sorted({each.printed["model"] for each in some}))
    counts = {int(each.line["samples"]) for each in some if each.line}
    limit = "" if min(counts) == 10_000 else f" --limit {min(counts)}"
    return f"`sigmazero run experiments/{plan}.toml {models} --precision tf32{limit}`\n"


def _table(some: Sequence[Compared]) -> str:
    counts = {each.line["samples"] for each in some if each.line}
    n = [{"n": f"{int(each.line['samples']):,}"} if each.line and len(counts) > 1 else {} for each in some]
    return markdown([_shown(each) | count for each, count in zip(some, n, strict=True)]) + "\n"


def _shown(each: Compared) -> Row:
    line, row = each.line, each.printed
    assert line is not None
    budget = {"k": row["budget"]} if "budget" in row else {}
    shown = {"model": row["model"], "attack": row["attack"], **budget}
    for name, ours, theirs in each.figures():
        digits = 0 if name == "median" else 1
        shown[name] = f"{_text(ours, digits)} / {_text(theirs, digits)}"
        shown[f"{name} less"] = _less(ours, theirs, digits)
    odd = any(word in row["note"] for word in ODD)
    ending = "_at_smallest" if budget else ""
    for heading, name, digits in (("q", "kqueries", 2), ("s", "seconds", 3)):
        theirs_text = row[f"{name}{ending}"]
        shown[heading] = f"{float(line[name]):.{digits}f}" + (f" / {theirs_text}" if theirs_text and not odd else "")
    shown["GB"] = (f"{float(line['memory_gb']):.2f}" if line["memory_gb"] else "–") + f" / {row['vram_gb'] or '–'}"
    return shown


def _text(value: float, digits: int) -> str:
    return "∞" if math.isinf(value) else f"{value:.{digits}f}" if digits or value == int(value) else f"{value:.1f}"


def _less(ours: float, theirs: float, digits: int) -> str:
    if ours == theirs:
        return "0"
    return "∞" if math.isinf(ours - theirs) else f"{ours - theirs:+.{digits}f}".replace("-", "−")


def _differences(here: Sequence[Compared]) -> list[str]:
    far = [each for each in here if each.far()]
    rows = [
        {
            "table": each.table,
            "model": each.printed["model"],
            "attack": each.printed["attack"],
            "k": each.printed.get("budget", ""),
            "figures": ", ".join(each.far()),
        }
        for each in far
    ]
    causes: dict[str, list[str]] = {}
    for each in far:
        names = causes.setdefault(each.cause() or "**not known**", [])
        names += [each.printed["attack"]] if each.printed["attack"] not in names else []
    return [
        "## Differences and their causes\n",
        f"{len(here) - len(far)} of {len(here)} rows are within {POINTS:g} points and {FEATURES:g} features of what is "
        "printed. The others:\n",
        markdown(rows) + "\n" if rows else "",
        *(f"- {', '.join(names)}: {cause}." for cause, names in causes.items()),
        "",
    ]


def _components(found: Sequence[Row]) -> list[str]:
    """Return the ablation on M1 and M2 beside the paper's, which is of C3 and C4."""
    switched = [row for row in found if row["steps"] == "1000" and _switches(row) is not None]
    switched = [row for row in switched if row["parameters"] or any(_same_rows(row, other) for other in switched)]
    if not any(row["parameters"] for row in switched):
        return []
    known = printed("ablation_components")
    made = []
    for row in switched:
        on = _switches(row)
        assert on is not None
        theirs = [p for p in known if [p[c] for c in COMPONENTS.values()] == on]
        words = {
            c.replace("_", " "): "yes" if v == "true" else "no" for c, v in zip(COMPONENTS.values(), on, strict=True)
        }
        ours = (
            f"{100 * float(row['asr_10']):.1f} / {100 * float(row['asr_50']):.1f} / {_text(float(row['median_l0']), 0)}"
        )
        printed_there = {
            f"paper, {code}": " / ".join((p["asr_10"], p["asr_50"], p["median_l0"]))
            for code, p in zip(("C3", "C4"), theirs, strict=False)
        }
        made.append({"model": row["model"], "n": row["samples"], **words, "ours": ours, **printed_there})
    made.sort(key=lambda r: r["model"])
    return [
        "## Table 2, on M1 and M2\n",
        "`sigmazero run experiments/ablation-components.toml --model M1 --model M2 --precision tf32`\n\n"
        "ASR10 / ASR50 / median. The paper has C3 and C4 (printed as C10 and C5); M1 and M2 stand in for them.\n",
        markdown(made) + "\n",
    ]


def _same_rows(row: Row, other: Row) -> bool:
    return bool(other["parameters"]) and (row["model"], row["samples"]) == (other["model"], other["samples"])


def _switches(row: Row) -> list[str] | None:
    """Return which components of σ-zero a line had on; None for other attacks and parameters."""
    own = json.loads(row["parameters"] or "{}")
    if row["attack"] != "sigma-zero" or row["budget"] or not set(own) <= set(COMPONENTS):
        return None
    return [str(own.get(name, True)).lower() for name in COMPONENTS]


def _algorithm(found: Sequence[Row]) -> list[str]:
    """Return the table of Algorithm 1 as printed beside the released code."""
    kinds = {'{"optimizer": "sgd", "order": "paper"}': "as printed", "": "as released"}
    some = [row for row in found if row["parameters"] in kinds and row["attack"] == "sigma-zero" and not row["budget"]]
    printed_rows = [row for row in some if kinds[row["parameters"]] == "as printed"]
    if not printed_rows:
        return []
    rows, more = [], []
    for mine in printed_rows:
        same = ("model", "steps", "samples")
        theirs = next(
            row for row in some if kinds[row["parameters"]] == "as released" and all(row[c] == mine[c] for c in same)
        )
        for row in (theirs, mine):
            rows.append(
                {
                    **{name: row[name] for name in same},
                    "Algorithm 1": kinds[row["parameters"]],
                    **{f"ASR{k}": f"{100 * float(row[f'asr_{k}']):.1f}" for k in KS},
                    "median l0": _text(float(row["median_l0"]), 0),
                    "mean l0": f"{float(row['mean_l0']):.2f}",
                }
            )
        more.append(f"{mine['model']} {100 * (float(mine['mean_l0']) / float(theirs['mean_l0']) - 1):.0f} %")
    return [
        "## Algorithm 1 as printed\n",
        "`sigmazero run experiments/algorithm-1.toml --precision tf32`\n\nThe paper prints the algorithm without "
        "Adam, and projects with the initial threshold first "
        '(`order="paper", optimizer="sgd"`). The released code, which made the published figures and which '
        "`sigma-zero` "
        f"is, uses Adam. As printed the algorithm needs more changes on the mean: {', '.join(more)}.\n",
        markdown(rows) + "\n",
    ]


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
        "Mean l0 with TF32 off (strict) and with torch's defaults (convolutions in TF32), and the difference in "
        "percent with the 95 % bootstrap interval, paired by sample. σ-swap: mean over three seeds (ResNet-50: one); "
        "σ-zero: one seed, queries / 2 steps and its checks besides. The first 1,000 rows of MNIST, 512 (ResNet-20) "
        "and 256 (PreActResNet-18) of CIFAR-10, 49 photos that the ResNet-50 classifies correctly.",
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
        "σ-swap up to 60 queries. Photos that were not fooled are lost, and left out of a mean.",
    ),
    (
        "Small inputs, few queries",
        "few-queries.csv",
        _without("median", "area", "rows"),
        "Mean l0 by `python -m benchmarks.few_queries`, strict fp32 on a processor, 32 rows (ResNet-20) and 50, "
        "version 3 of σ-swap. A sample that was not fooled counts as all its features. ![Mean l0 over "
        "queries](few-queries.png)",
    ),
)
PAGES = {"paper.md": page, "numbers.md": measured}


def main(words: Sequence[str] | None = None) -> None:
    """Write a CSV file or the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    made = kinds.add_parser("csv", help="the figures of stores, a line per cell")
    made.add_argument("stores", nargs="+", type=Path)
    made.add_argument("--out", type=Path, required=True)
    kinds.add_parser("page", help="the pages of docs/evidence from the CSV files")
    asked = parser.parse_args(words)
    if asked.kind == "page":
        for name, make in PAGES.items():
            (FOLDER / name).write_text(make(), encoding="utf-8")
        sys.stdout.write(f"wrote {', '.join(PAGES)}\n")
        return
    rows: list[Row] = []
    for path in asked.stores:
        with Store(path) as store:
            rows += lines(store)
    with asked.out.open("w", encoding="utf-8", newline="") as file:
        write(rows, file)
    sys.stdout.write(f"wrote {len(rows)} lines to {asked.out.name}\n")


if __name__ == "__main__":
    main()
