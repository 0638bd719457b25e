"""Cells and facts for the tests of stores."""

from pathlib import Path
from typing import Any

import numpy as np

from sigmazero.store.facts import KINDS, CellInfo, Facts
from sigmazero.store.store import Store


def cell(key: str = "k", rows: int = 1000, **changes: Any) -> CellInfo:
    """Describe a cell that no attack would make."""
    settled: dict[str, Any] = dict(
        model="m", dataset="d", attack="a", parameters={}, version=1, steps=1, unit="feature", goal="untargeted"
    )
    more: dict[str, Any] = dict(budget=None, seed=0, precision="fp32", model_sha256="", data_hash="")
    return CellInfo(key=key, rows=rows, **{**settled, **more, **changes})


def made(n: int, seed: int = 0, features: int = 50, kind: Any = np.float32) -> Facts:
    """Make facts of n samples from random numbers."""
    g = np.random.default_rng(seed)
    counts = g.integers(0, 6, n)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    index = np.concatenate([np.sort(g.choice(features, c, replace=False)) for c in counts] or [np.zeros(0, np.int64)])
    columns: dict[str, Any] = {name: g.integers(0, 5, n).astype(one) for name, one in KINDS.items()}
    columns["cost"][:] = np.nan
    return Facts(**columns, offsets=offsets, index=index.astype(np.int64), value=g.random(len(index)).astype(kind))


def same(left: Facts, right: Facts) -> None:
    """Compare facts exactly."""
    for name, values in vars(left).items():
        other = getattr(right, name)
        assert values.dtype == other.dtype, name
        assert np.array_equal(values, other, equal_nan=values.dtype.kind == "f"), name


def fill(path: Path, batches: int = 5) -> None:
    """Write one cell with batches of eight samples."""
    with Store(path, write=True) as store:
        store.register([cell()])
        run = store.begin({"torch": "1"})
        for i in range(batches):
            store.append("k", 8 * i, made(8, seed=i), run=run, peak_device=i)
