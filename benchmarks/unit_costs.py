"""What the simulation needs to know and a small machine can measure: how rows differ in cost, and what storing takes.

    python -m benchmarks.unit_costs --out benchmarks/results/unit-costs.jsonl

Rows of one cell differ in how often a search asks about them. That is counted, not timed, on the bundled network with
digits, for each attack of the paper. Storing is timed: an append in a transaction of its own, and several in one.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.store import made_up
from sigmazero.bench.cells import expand
from sigmazero.bench.loader import Loader
from sigmazero.bench.plan import parse_plan
from sigmazero.bench.run import execute
from sigmazero.store.facts import CellInfo
from sigmazero.store.store import Store

PLAN = """
batch_size = 64
steps = 100
[data.digits]
source = "mnist-5k-heldout"
limit = {rows}
seed = 0
[attacks.sparsefool-paper]
steps = 20
[[grid]]
models = ["demo"]
data = ["digits"]
attacks = ["sigma-zero", "fmn", "pdpgd-paper", "ead-paper", "vfga", "bb", "bb-dataset", "sparsefool-paper"]
[[grid]]
models = ["demo"]
data = ["digits"]
attacks = ["sigma-zero", "sparse-rs", "spgd-projected", "spgd-unprojected", "pgd-l0-paper"]
budgets = [10]
"""


def asked(rows: int) -> Iterator[dict[str, Any]]:
    """Of each attack, with a budget or without: the queries of rows, over their mean."""
    loader = Loader()
    with tempfile.TemporaryDirectory() as name, Store(Path(name) / "s.db", write=True) as store:
        cells, _ = expand(parse_plan(PLAN.format(rows=rows)).questions, loader)
        execute(cells, store, loader)
        for cell in cells:
            facts = store.facts(cell.info.key, perturbations=False)
            found = facts.forwards + facts.backwards
            quantiles = np.quantile(found / found.mean(), np.linspace(0, 1, 41))
            yield {
                "attack": cell.info.attack,
                "budget": cell.info.budget is not None,
                "rows": rows,
                "mean_queries": float(found.mean()),
                "relative": [round(float(value), 4) for value in quantiles],
            }


def storing(rows: int, appends: int, number: int) -> dict[str, Any]:
    """Milliseconds of an append of so many rows: committed by itself, and of forty in one transaction."""
    common: dict[str, Any] = {"dataset": "d", "parameters": {}, "version": 1, "steps": 1000, "unit": "feature"}
    more: dict[str, Any] = {"goal": "untargeted", "budget": None, "seed": 0, "precision": "fp32", "data_hash": ""}
    parts = [made_up(rows, seed) for seed in range(10)]
    alone, grouped = [], []
    with tempfile.TemporaryDirectory() as name, Store(Path(name) / "s.db", write=True) as store:
        count = 2 * appends * rows
        store.register([CellInfo(key="k", model="m", attack="a", rows=count, model_sha256="", **common, **more)])
        run, start = store.begin({}), 0
        for _ in range(appends):
            began = time.perf_counter()
            store.append("k", start, parts[start % 10], run=run)
            alone.append(time.perf_counter() - began)
            start += rows
        for _ in range(appends // 40):
            began = time.perf_counter()
            with store.together():
                for _ in range(40):
                    store.append("k", start, parts[start % 10], run=run)
                    start += rows
            grouped.append((time.perf_counter() - began) / 40)
    return {
        "storing": rows,
        "alone_ms": 1000 * float(np.median(alone)),
        "grouped_ms": 1000 * float(np.median(grouped)),
        "run": number,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=192, help="digits of each attack")
    parser.add_argument("--run", type=int, default=1, help="number of the run, to tell several apart")
    parser.add_argument("--out", type=Path, help="append the figures to this JSON-lines file")
    args = parser.parse_args()
    for found in chain((storing(rows, 400, args.run) for rows in (8, 64, 256, 512)), asked(args.rows)):
        print({name: value for name, value in found.items() if name != "relative"}, flush=True)
        if args.out:
            with args.out.open("a") as file:
                file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
