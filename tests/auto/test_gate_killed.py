"""A gate that was killed and started again leaves the record that it would have left: byte by byte, less the times."""

import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import sigmazero as sz
from sigmazero.auto import versions
from sigmazero.cli import app

NET = """
import torch

def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(60, 4))
"""
MEMBERS = (sz.get("sigma-zero", steps=8), sz.get("fmn", steps=8))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(NET)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(60, 4))
    images = torch.rand(12, 3, 4, 5, generator=torch.Generator().manual_seed(1))
    labels = network(images).argmax(1)
    np.savez(tmp_path / "mine.npz", images=images.numpy(), labels=labels.numpy())
    return tmp_path


def gate(folder: Path, state: str, under: int) -> int:
    """Run the gate in a folder, as the command line does."""
    os.chdir(folder)
    command = ["auto", "net.py:build", "mine.npz", "--eps", "2", "--version", "quick", "--batch-size", "4"]
    command += ["--fail-under", f"{under}", "--state", state, "--json", f"{state}.json", "--device", "cpu", "--quiet"]
    with mock.patch.dict(versions.VERSIONS, quick=versions.Version("quick", 0, MEMBERS, ())):
        return CliRunner().invoke(app, command).exit_code


def record(path: Path) -> tuple[str, dict[str, Any]]:
    """The bytes of a record without its times, and the record."""
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found.pop("times")
    return json.dumps(found, indent=2), found


# Below 90 % it ends early, above 1 % it runs to its end.
@pytest.mark.parametrize(
    ("point", "under", "code", "complete"),
    [
        ("batch.done", 90, 1, False),
        ("store.committed", 90, 1, False),
        ("store.committed", 1, 0, True),
        ("file.written", 1, 0, True),
    ],
)
def test_killed_at_any_point_it_leaves_the_same_record(children, folder, monkeypatch, point, under, code, complete):
    monkeypatch.chdir(folder)
    kills = 0
    while children.killed(f"{point}:{kills + 1}", gate, folder, "killed.db", under):
        kills += 1
    assert kills >= 1
    assert gate(folder, "killed.db", under) == gate(folder, "whole.db", under) == code
    text, found = record(folder / "killed.db.json")
    assert text == record(folder / "whole.db.json")[0]
    assert found["complete"] is complete
