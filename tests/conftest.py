"""What tests share."""

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # the test processes share the cores


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real data and weights; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("SIGMAZERO_SHARED", Path(__file__).parents[2] / "shared"))
    if not (folder / "data" / "mnist_test.npz").exists():
        pytest.skip("needs the real data: set SIGMAZERO_SHARED to the folder that holds data/")
    return folder
