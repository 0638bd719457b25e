"""What tests share."""

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # the test processes share the cores


@pytest.fixture
def shared_data() -> Path:
    """The folder with real data and weights; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("SIGMAZERO_SHARED", Path(__file__).parents[2] / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}: set SIGMAZERO_SHARED to run this test")
    return folder
