"""Measure attacks with few queries: mean and median l0 at 20 to 500 queries, checks included, as lines of CSV.

    python -m benchmarks.few_queries --models M1 M2 --out few-queries.csv
    python -m benchmarks.few_queries --out few-queries.csv --draw few-queries.png

Every attack may ask at most the queries of its line. A sample that was not fooled counts as all its features in the
mean. The area is that under the curve of mean l0 over the logarithm of the queries, by the trapezoidal rule: lower is
better, and it is in the unit of l0. The figure has a panel per network. corner is left out: it begins with every single
change, 1,568 of a digit.
"""

import argparse
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

import sigmazero as sz
from sigmazero import data, models
from sigmazero.models import zoo
from sigmazero.report.figures import style
from sigmazero.run.precision import Numbers

MEAN = "mean "
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


def draw(rows: list[dict[str, str]]) -> Any:
    """Draw a panel per network, on logarithmic axes."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    made = style.figure(3.8 * len(networks), 3.2)
    for place, network in enumerate(networks):
        axis = made.add_subplot(1, len(networks), place + 1)
        for row in (row for row in rows if row["network"] == network):
            points = [(int(k.removeprefix(MEAN)), float(v)) for k, v in row.items() if k.startswith(MEAN) and v]
            axis.plot(
                *zip(*points, strict=True), "o-", label=row["attack"], color=style.colour(row["attack"]), markersize=3
            )
        axis.set(xscale="log", yscale="log", xlabel="queries", ylabel="mean l0" if place == 0 else "")
        asked = [int(name.removeprefix(MEAN)) for name in rows[0] if name.startswith(MEAN)]
        axis.set_xticks(asked, [str(queries) for queries in asked])
        axis.minorticks_off()
        axis.set_title(style.plain(network), fontsize=9)
        style.tidy(axis)
    made.axes[0].legend(fontsize=7, frameon=False)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["demo"])
    parser.add_argument("--limit", type=int, default=100, help="rows of the model's data set")
    parser.add_argument("--out", type=Path, default=Path("few-queries.csv"), help="append the lines to this file")
    parser.add_argument("--draw", type=Path, help="only draw the lines of the file")
    given = parser.parse_args()
    held = pd.read_csv(given.out, dtype=str, keep_default_na=False) if given.out.exists() else pd.DataFrame()
    if given.draw:
        style.save(draw(held.to_dict("records")), given.draw)
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    lines = []
    for code in given.models:
        source = "mnist-5k-heldout" if code == "demo" else zoo.get(code).dataset
        rows = data.load(source, limit=given.limit)
        lines += measure(code, models.load(code, device=device), rows.images.to(device), rows.labels.to(device))
    pd.concat([held, pd.DataFrame(lines, columns=COLUMNS)]).to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
