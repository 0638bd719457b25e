from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from sigmazero.cli import app

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
def sigmazero(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the command line in this process, on a terminal 120 columns wide and without colours."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("SIGMAZERO_DEBUG", raising=False)

    def run(*arguments: object) -> Any:
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

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
