"""What the tests of the bridges share: a network and digits, and the other libraries where they are installed.

`make peers` installs them into an environment of its own and sets SIGMAZERO_PEERS: there a library that cannot be
imported is a failure. Elsewhere its tests are skipped, and say why.
"""

import importlib
import os
import sys
import types
import warnings
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from sigmazero import data, models
from sigmazero.adapters._peers import PEERS
from sigmazero.core.extras import MissingExtra

ROWS = 20
_libraries: list[Any] = []  # torch forgets operators whose library is collected


def _make_importable() -> None:
    """Let libraries be imported that name, without need for attacks, what does not work beside a torch for processors.

    torchvision's operators are missing there; visdom does not install, and wandb is for uploads.
    """
    if find_spec("torchvision"):
        try:
            importlib.import_module("torchvision")
        except RuntimeError:
            for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
                del sys.modules[name]
            library = torch.library.Library("torchvision", "DEF")
            for name in ("nms", "qnms"):
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _libraries.append(library)
    for name in ("visdom", "wandb"):
        if name not in sys.modules and not find_spec(name):
            stand_in = types.ModuleType(name)
            stand_in.__dict__.update(__spec__=ModuleSpec(name, None), __file__=None, __getattr__=lambda _: object)
            sys.modules[name] = stand_in


@pytest.fixture(scope="session")
def peer() -> Callable[..., Any]:
    """A library, or a part of it, by the name of its bridge."""
    _make_importable()

    def load(name: str, part: str = "") -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return PEERS[name].load(part)
        except MissingExtra as error:
            if os.environ.get("SIGMAZERO_PEERS"):
                raise
            pytest.skip(f"{error} (`make peers` runs this test)")

    return load


class Subject(NamedTuple):
    """A network and rows of a test set."""

    model: nn.Module
    x: Tensor
    y: Tensor


def subject_named(name: str, count: int = ROWS) -> Subject:
    """The paper's network where its weights are at hand, else the bundled one, which stands for it."""
    shared = Path(os.environ.get("SIGMAZERO_SHARED", Path(__file__).parents[3] / "shared")) / "data"
    if shared.is_dir():
        rows = data.load("mnist", limit=count, data_dir=shared)
        return Subject(models.load(name, model_dir=shared), rows.images, rows.labels)
    rows = data.load("mnist-5k-heldout", limit=count, seed=0)
    return Subject(models.load("demo"), rows.images, rows.labels)


@pytest.fixture(scope="session")
def subject() -> Subject:
    """The paper's M1, or the bundled network."""
    return subject_named("M1")
