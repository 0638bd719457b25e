"""Cells with literal facts of any number of samples, and stores of them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sigmazero.store import CellInfo, Facts, Store


def cell(model: str, attack: str, l0: Sequence[float], queries: int = 2000, **more: Any) -> tuple[CellInfo, Facts]:
    """Return a cell and its facts, as a run would leave them."""
    known: dict[str, Any] = {
        "dataset": "mnist",
        "parameters": {"steps": more.get("steps", 1000)},
        "version": 1,
        "steps": 1000,
        "unit": "feature",
        "goal": "untargeted",
        "budget": None,
        "seed": 0,
        "precision": "fp32",
        "rows": len(l0),
        "model_sha256": f"weights of {model}",
        "data_hash": "rows",
    }
    known |= more
    key = f"{model} {attack} {sorted((k, str(v)) for k, v in known.items())}"
    n = len(l0)
    empty = {name: each for name, each in vars(Facts.empty()).items() if name not in ("offsets", "index", "value")}
    columns: dict[str, Any] = {name: np.zeros(n, each.dtype) for name, each in empty.items()}
    columns["cost"] = np.full(n, np.nan)
    columns |= {"row": np.arange(n), "l0": np.array(l0, float), "l0_pixel": np.array(l0, float)}
    columns |= {"outcome": np.where(np.isinf(l0), 2, 1).astype(np.int8), "seconds": np.full(n, 0.1 + 0.2)}
    columns |= {"forwards": np.full(n, queries // 2), "backwards": np.full(n, queries - queries // 2)}
    facts = replace(Facts.empty(), **columns, offsets=np.zeros(n + 1, np.int64))
    return CellInfo(key=key, model=model, attack=attack, **known), facts


def fill(path: Path, cells: list[tuple[CellInfo, Facts]], peak: int | None = None) -> Path:
    """Write cells to a store."""
    with Store(path, write=True) as store:
        store.register([info for info, _ in cells])
        run = store.begin({"torch": "2"})
        for info, facts in cells:
            store.append(info.key, 0, facts, run=run, peak_device=peak)
    return path
