"""Commands that a soak kills: each in a folder of its own, made from a template, with what it must leave in the end."""

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import sigmazero as sz
from sigmazero.auto import versions
from sigmazero.cli import app
from sigmazero.models import zoo
from sigmazero.store import Store
from sigmazero.store.database import StoreError
from sigmazero.store.results import RECORD
from tests.plans import NET, PLAN

BRIEF = PLAN.replace("steps = 30", "steps = 4").replace(', "net.py:other"', "").replace(', "vfga"', "")
MEMBERS = (sz.get("sigma-zero", steps=6), sz.get("sparse-rs", steps=20))
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
COMMANDS: dict[str, tuple[str, ...]] = {
    "run": ("run", "plan.toml", "--store", "s.db", "--device", "cpu", "--trust-code"),
    "auto": (
        *("auto", "--model", "net.py:build", "--data", "mine.npz", "--device", "cpu", "--version", "quick"),
        *("--eps", "2", "--batch-size", "8", "--state", "state.db", "--out", "auto.npz", "--no-doctor"),
        *("--allow", "SZ014"),  # a few steps of gradients are beaten by chance
    ),
    "attack": (
        *("attack", "--model", "net.py:build", "--data", "mine.npz", "--device", "cpu", "--steps", "4"),
        *("--batch-size", "8", "--out", "result.npz", "--no-doctor"),
    ),
    "fetch": ("fetch", "X1", "--model-dir", "models"),
    "table": ("report", "done.db", "--out", "table.csv"),
    "page": ("report", "done.db", "-o", "page.html"),
    "site": ("report", "done.db", "--bundle", "site"),
    "csv": ("export", "done.db", "--to", "csv", "--perturbations"),
    "jsonl": ("export", "done.db", "--to", "jsonl"),
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
    command(place, "run")
    (folder / "s.db").rename(folder / "done.db")
    command(place, "site")


def command(place: Place, name: str) -> None:
    """Run a command to its end, in this process."""
    entries = zoo.parse(ENTRY.format(port=place.port, sha256=hashlib.sha256(CONTENT).hexdigest()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zoo, "entries", lambda: entries)
        patch.setitem(versions.VERSIONS, "quick", versions.Version("quick", 0, MEMBERS, ()))
        patch.setenv("no_proxy", "127.0.0.1")  # the server is here, whatever the way to the network
        patch.chdir(place.folder)
        done = CliRunner().invoke(app, list(COMMANDS[name]))
    assert done.exit_code == 0, f"{name}: {done.output}{done.exception!r}"


def temporary(name: Path) -> bool:
    """Whether a file is no result: a temporary name, a lock, a compiled module, or a download that goes on."""
    hidden = any(part.startswith(".") or part == "__pycache__" for part in name.parts)
    return hidden or name.suffix in (".lock", ".part")


def one(path: Path) -> Any:
    """What a file holds, but for times."""
    if path.suffix == ".db":
        return _facts(path)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            held = {key: arrays[key].tobytes() for key in arrays.files if key != "seconds"}
        if RECORD in held:
            told = json.loads(held[RECORD])
            held[RECORD] = json.dumps({name: value for name, value in told.items() if name != "times"}).encode()
        return held
    return path.read_bytes()


def left(folder: Path, stores: bool = True) -> dict[str, Any]:
    """What a command leaves: every file, with the facts of stores (unless they may be half done)."""
    names = {path: path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()}
    results = [path for path, name in names.items() if not temporary(name)]
    return {names[path].as_posix(): one(path) for path in results if stores or ".db" not in path.name}


def _facts(path: Path) -> dict[str, Any]:
    with Store(path) as store:
        assert store.audit() == []
        facts = {info.key: store.facts(info.key) for info in store.cells()}
        states = [(one.cell.key, one.state, one.done) for one in store.status()]
    columns = {
        f"{key} {name}": values.tobytes()
        for key, each in facts.items()
        for name, values in vars(each).items()
        if name != "seconds"
    }
    return {**columns, "states": json.dumps(states)}


def stored(folder: Path) -> int:
    """How many rows are stored, even if a store has only begun."""
    count = 0
    for path in folder.glob("*.db"):
        with suppress(StoreError), Store(path) as store:
            count += sum(one.done for one in store.status())
    return count
