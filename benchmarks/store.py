"""What storing costs: its share of a run's time, bytes per sample, and the time of a table over a million rows.

    python -m benchmarks.store --out benchmarks/results/store.jsonl

The first two are measured on the bundled network and digits of MNIST's size, the last on made-up facts.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sigmazero.bench.cells import expand
from sigmazero.bench.loader import Loader
from sigmazero.bench.plan_file import parse_plan
from sigmazero.bench.run import execute
from sigmazero.core.metrics import average
from sigmazero.report import runs
from sigmazero.store.facts import CellInfo, Facts
from sigmazero.store.store import Store

PLAN = """
batch_size = 64
[data.digits]
source = "mnist-5k-heldout"
limit = {rows}
seed = 0
[[grid]]
models = ["demo"]
data = ["digits"]
attacks = ["{attack}"]
steps = {steps}
"""


def storing(folder: Path, attack: str, steps: int, rows: int) -> dict[str, float | str]:
    """Seconds of a run and of its storing, and the size of the store."""
    path, loader = folder / f"{attack}-{steps}.db", Loader()
    spent = 0.0
    with Store(path, write=True) as store:
        cells, _ = expand(parse_plan(PLAN.format(attack=attack, steps=steps, rows=rows)).questions, loader)
        append = store.append

        def timed(*arguments, **more):
            nonlocal spent
            began = time.perf_counter()
            append(*arguments, **more)
            spent += time.perf_counter() - began

        store.append = timed  # type: ignore[method-assign]
        began = time.perf_counter()
        execute(cells, store, loader)
        whole = time.perf_counter() - began
        l0 = store.facts(cells[0].info.key).l0
    return {
        "attack": attack,
        "steps": steps,
        "rows": rows,
        "seconds": whole,
        "storing_percent": 100 * spent / whole,
        "bytes_per_sample": path.stat().st_size / rows,
        "mean_l0_found": average(l0[np.isfinite(l0)]),
    }


def made_up(rows: int, seed: int) -> Facts:
    """Facts that look like those of an attack on MNIST: about twenty changes per sample."""
    g = np.random.default_rng(seed)
    counts = g.integers(5, 36, rows)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    index = np.sort(g.random((rows, 784)).argpartition(36, 1)[:, :36], 1)[np.arange(36) < counts[:, None]]
    whole = {name: g.integers(0, 10, rows) for name in ("label", "clean_prediction", "prediction")}
    return Facts(
        row=np.arange(rows) + 1000 * seed,
        target=np.full(rows, -1),
        outcome=np.ones(rows, np.int8),
        l0=counts.astype(np.float64),
        l0_pixel=counts.astype(np.float64),
        step_found=g.integers(0, 1000, rows),
        forwards=np.full(rows, 1002),
        backwards=np.full(rows, 1000),
        given_up=np.zeros(rows, np.int64),
        returned=np.full(rows, np.nan),
        margin=g.normal(size=rows).astype(np.float32).astype(np.float64),
        seconds=np.full(rows, 0.01),
        cost=np.full(rows, np.nan),
        offsets=offsets,
        index=index,
        value=g.random(len(index), dtype=np.float32),
        **whole,
    )


def full_table(folder: Path, cells: int, rows: int, batch: int) -> dict[str, float]:
    """Seconds to print a table of a store with so many cells and rows each."""
    path = folder / "large.db"
    parts = [made_up(batch, seed) for seed in range(20)]
    with Store(path, write=True) as store:
        names = [f"{place:064d}" for place in range(cells)]
        common: dict[str, Any] = {"dataset": "d", "parameters": {}, "version": 1, "steps": 1000, "unit": "feature"}
        more: dict[str, Any] = {"goal": "untargeted", "budget": None, "seed": 0, "precision": "fp32", "data_hash": ""}
        store.register(
            [
                CellInfo(key=k, model=f"m{i // 10}", attack=f"a{i % 10}", rows=rows, model_sha256="", **common, **more)
                for i, k in enumerate(names)
            ]
        )
        run = store.begin({"torch": torch.__version__})
        store._base.execute("PRAGMA synchronous=OFF")  # filling it is not what is measured
        for name in names:
            for start in range(0, rows, batch):
                part = parts[start // batch % len(parts)].take(slice(0, rows - start))
                store.append(name, start, part, run=run)
    began = time.perf_counter()
    with Store(path) as store:
        lines = runs.records(runs.load(store))
    table = time.perf_counter() - began
    assert len(lines) == cells
    began = time.perf_counter()
    with Store(path) as store:
        store.status()
    status = time.perf_counter() - began
    size = path.stat().st_size
    return {
        "rows": cells * rows,
        "cells": cells,
        "batch": batch,
        "table_seconds": table,
        "status_seconds": status,
        "bytes_per_sample": size / (cells * rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=192, help="digits in each run")
    parser.add_argument("--out", type=Path, help="append the figures to this JSON-lines file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found: list[dict[str, float | str]] = [
            storing(folder, attack, steps, args.rows)
            for attack, steps in (("sigma-zero", 100), ("fmn", 100), ("sparsefool", 20), ("pdpgd-paper", 100))
        ]
        found += [{**full_table(folder / str(batch), 100, 10_000, batch)} for batch in (250, 32)]
    for row in found:
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
        if args.out:
            with args.out.open("a") as file:
                file.write(json.dumps({**row, "torch": torch.__version__}) + "\n")


if __name__ == "__main__":
    main()
