"""Commands that tests/system does not kill: each in a folder of its own, with what it must leave in the end."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from sigmazero.cli import app
from sigmazero.models import zoo
from sigmazero.store import Store
from tests.plans import NET, PLAN

BRIEF = PLAN.replace("steps = 30", "steps = 4").replace(', "net.py:other"', "").replace(', "vfga"', "")
CONTENT = bytes(range(256)) * 1200  # five pieces of a download
ENTRY = """
[X1]
title = "x"
architecture = "smallcnn"
dataset = "mnist"
threat_model = "none"
input_size = [1, 28, 28]
source = "a test"
weights = [{{ file = "deep/x1.pt", url = "http://127.0.0.1:{port}/x1.pt", sha256 = "{sha256}" }}]
"""
RUN = ("run", "plan.toml", "--store", "done.db", "--device", "cpu", "--trust-code")
COMMANDS: dict[str, tuple[str, ...]] = {
    "fetch": ("fetch", "X1"),
    "page": ("report", "done.db", "-o", "page.html"),
    "site": ("report", "done.db", "--bundle", "site"),
    "csv": ("export", "done.db", "-o", "done.csv", "--perturbations"),
    "merge": ("merge", "done.db", "-o", "all.db"),
}


@dataclass(frozen=True)
class Place:
    """Where a command is run, and the server of the weights that it may fetch."""

    folder: Path
    port: int


def prepare(place: Place) -> None:
    """The files that commands begin with: a network, data, a plan, a finished store, and the site of it."""
    folder = place.folder
    folder.mkdir()
    (folder / "net.py").write_text(NET)
    (folder / "plan.toml").write_text(BRIEF)
    images = torch.rand(24, 60, generator=torch.Generator().manual_seed(1))
    weight = torch.randn(4, 60, generator=torch.Generator().manual_seed(0))
    np.savez(folder / "mine.npz", images=images, labels=(images[:, None] * weight).sum(2).argmax(1))
    command(place, *RUN)
    command(place, *COMMANDS["site"])


def command(place: Place, *arguments: str) -> None:
    """Run a command to its end, in this process."""
    entries = zoo.parse(ENTRY.format(port=place.port, sha256=hashlib.sha256(CONTENT).hexdigest()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zoo, "entries", lambda: entries)
        patch.setenv("no_proxy", "127.0.0.1")  # the server is here, whatever the way to the network
        patch.chdir(place.folder)
        patch.setenv("SIGMAZERO_HOME", str(place.folder))
        done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, f"{arguments}: {done.output}{done.exception!r}"


def temporary(name: Path) -> bool:
    """Whether a file is no result: a temporary name, a lock, a compiled module, or a download that goes on."""
    hidden = any(part.startswith(".") or part == "__pycache__" for part in name.parts)
    return hidden or name.suffix in (".lock", ".lock-journal", ".part")


def one(path: Path) -> Any:
    """What a file holds, but for times."""
    return _facts(path) if path.suffix == ".db" else path.read_bytes()


def left(folder: Path) -> dict[str, Any]:
    """What a command leaves: every file, with the facts of stores."""
    names = {path: path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()}
    results = [path for path, name in names.items() if not temporary(name)]
    return {names[path].as_posix(): one(path) for path in results}


def _facts(path: Path) -> dict[str, Any]:
    with Store(path) as store:
        assert store.damage() == []
        facts = {info.key: store.facts(info.key) for info in store.cells()}
        states = [(one.cell.key, one.state, one.done) for one in store.status()]
    columns = {
        f"{key} {name}": values.tobytes()
        for key, each in facts.items()
        for name, values in vars(each).items()
        if name != "seconds"
    }
    return {**columns, "states": json.dumps(states)}
