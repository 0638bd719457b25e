"""Every test here sees empty home and cache folders, and makes the files it needs."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIGMAZERO_HOME", raising=False)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere"))


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (12, 28, 28), dtype=np.uint8)


@pytest.fixture
def write_idx() -> Callable[[Path, np.ndarray], Path]:
    """Write an array as an idx file, packed when the name ends in .gz."""

    def write(path: Path, array: np.ndarray) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        data = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path

    return write
