"""Compare σ-swap with σ-zero at equal queries over seeds: the lines of docs/evidence/stronger.csv from stores.

A line is a network and a number of queries: the mean l0 of both attacks over all rows and seeds, the difference in
percent, and its 95 % bootstrap interval. Rows are drawn with the means of both attacks over their seeds. A sample that
was not fooled counts as all its features.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sigmazero.report import runs
from sigmazero.store import Store

Row = dict[str, str]
COLUMNS = (
    *("network", "dataset", "goal", "queries", "rows", "seeds", "sigma_zero", "sigma_swap", "percent", "low", "high"),
    *("asr_10_sigma_zero", "asr_10_sigma_swap", "precision", "device", "torch", "cells"),
)
ATTACKS = {"SigmaZero": "sigma_zero", "SigmaSwap": "sigma_swap"}
DRAWS = 10_000
DIGITS = 12  # of the key of a cell


def lines(stores: Iterable[Path]) -> list[Row]:
    """Return a line per network, goal and number of queries that both attacks answered on the same rows."""
    every: dict[str, runs.Run] = {}
    for path in stores:
        with Store(path) as store:
            every |= {run.info.key: run for run in runs.load(store) if len(run) == run.info.rows}
    found: dict[tuple[str, ...], dict[str, list[runs.Run]]] = {}
    for run in every.values():
        info = run.info
        name = ATTACKS.get(info.identity["attack"]["class"])
        if name is not None and info.budget is None:
            queries = info.parameters.get("queries") or 2 * info.steps
            key = (info.model, info.dataset, info.data_hash, info.goal, info.unit, info.precision, str(queries))
            found.setdefault(key, {}).setdefault(name, []).append(run)
    return [_line(key, pair) for key, pair in found.items() if len(pair) == len(ATTACKS)]


def _line(key: tuple[str, ...], pair: dict[str, list[runs.Run]]) -> Row:
    network, dataset, _, goal, _, precision, queries = key
    zero, swap = (_per_row(pair[name]) for name in ATTACKS.values())
    low, high = interval(zero, swap)
    every = [run for some in pair.values() for run in some]
    figures = {
        **{name: f"{values.mean():.2f}" for name, values in zip(ATTACKS.values(), (zero, swap), strict=True)},
        **{"percent": f"{percent(zero, swap):+.1f}", "low": f"{low:+.1f}", "high": f"{high:+.1f}"},
        **{f"asr_10_{name}": f"{100 * np.mean([_share(run) for run in some]):.1f}" for name, some in pair.items()},
    }
    seeds = {run.info.seed for run in pair["sigma_swap"]}
    about = {
        name: "; ".join(sorted({str(run.info.provenance.get(name)) for run in every})) for name in ("device", "torch")
    }
    return {
        **{"network": network, "dataset": dataset, "goal": goal, "queries": queries, "rows": str(len(zero))},
        **{"seeds": str(len(seeds)), "precision": precision},
        **figures,
        **about,
        "cells": " ".join(run.info.key[:DIGITS] for run in every),
    }


def _per_row(some: list[runs.Run]) -> NDArray[np.float64]:
    """Return the mean changes of each row over seeds."""
    rows = np.sort(some[0].facts.row)
    counts = []
    for run in some:
        features = math.prod(run.info.about["shape"])
        changes = run.changes[run.places(rows)]
        counts.append(np.where(np.isfinite(changes), changes, features))
    return np.asarray(np.mean(counts, axis=0))


def _share(run: runs.Run) -> float:
    return float((run.changes <= 10).mean())


def percent(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    """Return the difference of two means in percent of the first."""
    return 100 * (float(after.mean()) / float(before.mean()) - 1)


def interval(before: NDArray[np.float64], after: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of `percent`, paired by row."""
    chosen = np.random.default_rng(0).integers(len(before), size=(DRAWS, len(before)))
    drawn = 100 * (after[chosen].mean(1) / before[chosen].mean(1) - 1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)
