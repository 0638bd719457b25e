"""What tests share."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.plans import NET, PLAN

torch.set_num_threads(1)  # the test processes share the cores


@pytest.fixture
def shared_data() -> Path:
    """The folder with real data and weights; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("SIGMAZERO_SHARED", Path(__file__).parents[2] / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}: set SIGMAZERO_SHARED to run this test")
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with two networks in net.py, 24 images of shape 3×4×5 in mine.npz, and plan.toml."""
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "plan.toml").write_text(PLAN)
    images = torch.rand(24, 3, 4, 5, generator=torch.Generator().manual_seed(1))
    labels = torch.randint(4, (24,), generator=torch.Generator().manual_seed(2))
    np.savez(tmp_path / "mine.npz", images=images.numpy(), labels=labels.numpy())
    monkeypatch.chdir(tmp_path)
    return tmp_path
