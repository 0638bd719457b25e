"""A small table to attack: loans, with an age that grows a little, a fixed sex, jobs, and gains that cost more."""

from pathlib import Path

import numpy as np

NAMES = ["age", "sex", "gain", "job=clerk", "job=nurse", "job=cook"]
CLASSES = ["refused", "granted"]
SPACE = """
[feature.age]
kind = "integer"
lower = 17
upper = 90
direction = "up"
around = 5
[feature.sex]
kind = "binary"
direction = "none"
[feature.gain]
upper = 1000
cost = 3
[feature."job=clerk"]
kind = "binary"
[feature."job=nurse"]
kind = "binary"
[feature."job=cook"]
kind = "binary"
[group.job]
one_hot = ["job=clerk", "job=nurse", "job=cook"]
"""
PLAN = """
[data.loans]
source = "loans.npz"
[[grid]]
models = ["net.py:build"]
data = ["loans"]
attacks = ["corner"]
"""
WITH_SPACE = f'{PLAN}[space]\nfile = "loan.toml"\n'
NET = """
import torch

def build():
    net = torch.nn.Linear(6, 2).requires_grad_(False)
    net.weight.copy_(torch.tensor([[0.0] * 6, [0.02, 5.0, 0.01, 0.0, 0.3, 1.0]]))
    net.bias.copy_(torch.tensor([1.55, 0.0]))
    return net
"""


def table(rows: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and which loan is granted."""
    g = np.random.default_rng(0)
    x = np.zeros((rows, 6), np.float32)
    x[:, 0] = g.integers(18, 60, rows)
    x[:, 2] = g.integers(0, 40, rows)
    x[np.arange(rows), 3 + g.integers(0, 2, rows)] = 1
    score = x @ np.array([0.02, 5.0, 0.01, 0.0, 0.3, 1.0], np.float32)
    return x, (score > 1.55).astype(np.int64)


def write(folder: Path, names: list[str] = NAMES, classes: list[str] = CLASSES) -> None:
    """The table, its space and a network, in a folder."""
    x, y = table()
    np.savez(folder / "loans.npz", images=x, labels=y, names=np.array(names), classes=np.array(classes))
    (folder / "loan.toml").write_text(SPACE)
    (folder / "net.py").write_text(NET)
