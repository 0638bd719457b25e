"""A leaderboard of one small network, which is code in a file, and points that fool it."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import sigmazero as sz
from sigmazero.bench.identity import hash_weights
from sigmazero.bench.loader import EVERYTHING, Loader
from sigmazero.bench.plan import DataSpec
from sigmazero.board import Leaderboard, add
from sigmazero.board.folder import new_board
from tests.plans import NET

ROWS = 10


def network() -> torch.nn.Module:
    space: dict[str, Any] = {}
    exec(NET, space)
    built: torch.nn.Module = space["build"]()
    return built


@dataclass
class Made:
    """A leaderboard on disk, its rows, and the fewest changes that an attack found for them."""

    path: Path
    images: Tensor
    labels: Tensor
    points: Tensor
    loader: Loader

    @property
    def board(self) -> Leaderboard:
        """As it is on disk now."""
        return Leaderboard(self.path)

    def save(self, points: Tensor, rows: list[int], name: str = "points.npz") -> Path:
        """A file of points for some rows."""
        file = self.path.parent / name
        np.savez(file, x_adv=points[rows].numpy(), ids=np.array(rows))
        return file


def card(folder: Path, **changes: str) -> Path:
    """A card of the network, beside its code."""
    (folder / "net.py").write_text(NET)
    told = {"name": '"mine"', "model": '"net.py:build"', "sha256": f'"{hash_weights(network())}"'}
    told |= {"boards": '["small", "small-pixels"]', **changes}
    (folder / "mine.toml").write_text("".join(f"{key} = {value}\n" for key, value in told.items() if value))
    return folder / "mine.toml"


@pytest.fixture(scope="session")
def _template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tensor, Tensor, Tensor]:
    folder = tmp_path_factory.mktemp("board")
    images = torch.rand(ROWS, 3, 4, 5, generator=torch.Generator().manual_seed(1))
    model = network().requires_grad_(False)
    labels = model(images).argmax(1)
    labels[0] = (labels[0] + 1) % 4  # wrong as it is
    np.savez(folder / "rows.npz", images=images.numpy(), labels=labels.numpy())
    found = sz.get("sigma-zero", steps=60).run(model, images, labels)
    assert bool(found.success.all())
    for name, unit in (("small", "feature"), ("small-pixels", "pixel")):
        spec = DataSpec(name, str(folder / "rows.npz"))
        new_board(folder / "board", name, spec, unit, (1, 4))
    return folder, images, labels, found.x_adv


@pytest.fixture
def made(_template: tuple[Path, Tensor, Tensor, Tensor], tmp_path: Path) -> Made:
    """The network with worse points than the best: two more features are changed in each."""
    folder, images, labels, best = _template
    shutil.copytree(folder / "board", tmp_path / "board")
    here = Made(tmp_path / "board", images, labels, best, Loader("cpu", trust=EVERYTHING))
    store = here.save(worse(here), list(range(ROWS)), "first.npz")
    add(here.board, card(tmp_path), here.loader, by="Ada", stores=[store], version=None)
    return here


def worse(made: Made, more: int = 2) -> Tensor:
    """Points that change so many features more by too little to matter, at first of pixels that are changed already."""
    points = made.points.clone()
    for row, point in enumerate(points):
        flat, clean = point.view(-1), made.images[row].view(-1)
        touched = (point != made.images[row]).any(0).expand(3, 4, 5).reshape(-1)
        same = (flat == clean).nonzero().squeeze(1)
        same = same[touched[same].int().argsort(descending=True, stable=True)][:more]
        flat[same] = (clean[same] + 1e-6).clamp(0, 1)
    return points
