from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.commands import run_command

NET = """
import torch

def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(60, 4))

def softmax():
    return torch.nn.Sequential(build(), torch.nn.Softmax(1))

def broken():
    raise RuntimeError("this network cannot be built")
"""


@pytest.fixture
def sigmazero() -> Callable[..., Any]:
    """Run the command line in this process, on a terminal 120 columns wide and without colours."""

    def run(*arguments: object) -> Any:
        done = run_command(*arguments)
        return SimpleNamespace(
            exit_code=done.code, stdout=done.stdout, stderr=done.stderr, output=done.stdout + done.stderr
        )

    return run


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, made the current one, with net.py and mine.npz: 3×4×5 images labelled by the network."""
    (tmp_path / "net.py").write_text(NET)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(60, 4))
    images = torch.rand(12, 3, 4, 5, generator=torch.Generator().manual_seed(1))
    labels = network(images).argmax(1)
    np.savez(tmp_path / "mine.npz", images=images.numpy(), labels=labels.numpy())
    monkeypatch.chdir(tmp_path)
    return tmp_path
