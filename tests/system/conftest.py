"""A folder with networks, data and a plan; the command line in a process of its own, or in this one."""

import csv
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sigmazero.__main__ import main

# `counted` notes how many rows a search asks it about. It stops at the eighth time where there is a file `hold`:
# it says so, and goes on when its standard input is closed.
NET = """
import sys
from pathlib import Path

import torch

WEIGHT = torch.randn(4, 60, generator=torch.Generator().manual_seed(0))

def ask(x):
    return (x.flatten(1)[:, None] * WEIGHT).sum(2)

def counted():
    def search(x):
        if x.requires_grad:
            with open("asked", "a") as file:
                file.write(f"{len(x)}\\n")
            if Path("hold").exists() and len(Path("asked").read_text().split()) == 8:
                print("holding", file=sys.stderr, flush=True)
                sys.stdin.read()
        return ask(x)
    return search

def softmax():
    return lambda x: torch.softmax(50 * ask(x), 1)

def linear():
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(60, 4, bias=False))
    with torch.no_grad():
        network[1].weight.copy_(WEIGHT)
    return network

def failing():
    def fail(x):
        if x.requires_grad:
            raise RuntimeError("no gradients here")
        return ask(x)
    return fail
"""
PLAN = """
steps = 5
batch_size = 8

[data.mine]
source = "mine.npz"

[[grid]]
models = ["net.py:counted"]
data = ["mine"]
attacks = ["sigma-zero", "fmn"]
"""
SOURCES = Path(__file__).parents[2] / "src"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with net.py, plan.toml, and 24 images of shape 3×4×5 that its network has right."""
    images = torch.rand(24, 3, 4, 5, generator=torch.Generator().manual_seed(1))
    weight = torch.randn(4, 60, generator=torch.Generator().manual_seed(0))
    labels = (images.flatten(1)[:, None] * weight).sum(2).argmax(1)
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "plan.toml").write_text(PLAN)
    np.savez(tmp_path / "mine.npz", images=images.numpy(), labels=labels.numpy())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Callable[..., "subprocess.Popen[str]"]:
    """Start the command line in a process of its own; words in capitals are variables of its environment."""

    def process(*arguments: object, **environment: str) -> "subprocess.Popen[str]":
        plain = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        env = {**plain, "PYTHONPATH": str(SOURCES), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            [sys.executable, "-m", "sigmazero", *map(str, arguments)],
            env={**env, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return process


@pytest.fixture
def sigmazero(start: Callable[..., "subprocess.Popen[str]"]) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in a process of its own to its end; the exit code, stdout and stderr, without colours."""

    def run(*arguments: object, **environment: str) -> tuple[int, str, str]:
        process = start(*arguments, **environment)
        out, err = process.communicate()
        assert not {"\x1b", "\r"} & set(out + err), "a pipe is no terminal"
        return process.returncode, out, err

    return run


@pytest.fixture
def here(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process, which need not load torch again; the exit code, stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sigmazero", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0), *capsys.readouterr()

    return run


@pytest.fixture
def facts(here: Callable[..., tuple[int, str, str]]) -> Callable[[str], list[dict[str, Any]]]:
    """Export a store; all it holds about every row but the times."""

    def read(store: str) -> list[dict[str, Any]]:
        assert here("export", store, "--perturbations", "--out", f"{store}.csv")[0] == 0
        with open(f"{store}.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        return sorted(({**row, "seconds": ""} for row in rows), key=lambda row: (row["cell"], int(row["row"])))

    return read
