"""Measure attacks with few queries: mean and median l0 at 20 to 500 queries, checks included, as lines of CSV.

    python -m benchmarks.few_queries --models M1 M2 --model-dir weights/ --data-dir data/ --out few-queries.csv

Every attack may ask at most the queries of its line. A sample that was not fooled counts as all its features in the
mean. The area is that under the curve of mean l0 over the logarithm of the queries, by the trapezoidal rule: lower is
better, and it is in the unit of l0. corner is left out: it begins with every single change, 1,568 of a digit.
"""

import argparse
import csv
import math
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

import sigmazero as sz
from sigmazero import data, models
from sigmazero.models import zoo
from sigmazero.run.precision import Numbers

QUERIES = (20, 50, 100, 200, 500)
CHECKS = 3  # the clean input, and at most two finds
COLUMNS = ("network", "attack", *(f"{what} {q}" for q in QUERIES for what in ("mean", "median")), "area", "rows")


def attacks(queries: int) -> dict[str, sz.Attack | None]:
    """Return the attacks that stay within the queries; None where one cannot even take a step."""
    left = queries - CHECKS
    steps = {"sigma-zero": left // 2, "vfga": left // 22, "sparse-rs-min": left}
    found: dict[str, sz.Attack | None] = {"sigma-swap": sz.get("sigma-swap", queries=queries)}
    return found | {name: sz.get(name, steps=n) if n else None for name, n in steps.items()}


def measure(name: str, model: nn.Module, x: Tensor, y: Tensor) -> list[dict[str, str]]:
    """Return a line per attack."""
    figures: dict[str, dict[str, str]] = {}
    means: dict[str, list[tuple[int, float]]] = {}
    for queries in QUERIES:
        for label, attack in attacks(queries).items():
            if attack is None:
                continue
            with Numbers.strict(x.device).applied():  # so that checks cost three queries everywhere
                result = attack.run(model, x, y)
            most = int((result.forwards + result.backwards).max())
            assert most <= queries, f"{label} asked {most} of {queries}"
            mean = float(result.l0.clamp(max=x[0].numel()).mean())
            line = figures.setdefault(label, {"network": name, "attack": label, "rows": str(len(x))})
            line |= {f"mean {queries}": f"{mean:.2f}", f"median {queries}": f"{result.median_l0:g}"}
            means.setdefault(label, []).append((queries, mean))
    for label, points in means.items():
        if len(points) == len(QUERIES):
            area = sum((a + b) / 2 * math.log(q / p) for (p, a), (q, b) in pairwise(points)) / math.log(
                QUERIES[-1] / QUERIES[0]
            )
            figures[label]["area"] = f"{area:.2f}"
    return list(figures.values())


def write(lines: list[dict[str, str]], out: Path) -> None:
    """Append lines to a CSV file, with a heading if it is new."""
    new = not out.exists()
    with out.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", restval="")
        if new:
            writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["demo"])
    parser.add_argument("--model-dir")
    parser.add_argument("--data-dir")
    parser.add_argument("--limit", type=int, default=100, help="rows of the model's data set")
    parser.add_argument("--out", type=Path, default=Path("few-queries.csv"), help="append the lines to this file")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for code in given.models:
        source = "mnist-5k-heldout" if code == "demo" else zoo.get(code).dataset
        rows = data.load(source, limit=given.limit, data_dir=given.data_dir)
        model = models.load(code, model_dir=given.model_dir, device=device)
        write(measure(code, model, rows.images.to(device), rows.labels.to(device)), given.out)
