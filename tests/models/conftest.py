import csv
from pathlib import Path

import pytest
import torch

LAYOUTS = Path(__file__).parent / "layouts"

# Which published layout an entry's network has.
LAYOUT_OF = {
    **dict.fromkeys(("M1", "M2"), "smallcnn"),
    "C1": "wrn28_10_subblock1",
    "C5": "wrn28_10",
    **dict.fromkeys(("C2", "C7"), "resnet50_cifar"),
    **dict.fromkeys(("C3", "C4", "C11", "C12", "prn18-linf"), "preact_resnet18"),
    "C6": "dmwrn70_16_swish",
    "C8": "resnet50_cifar_chen",
    "C9": "dmwrn28_10_silu",
    "C10": "resnet18_cifar",
    **dict.fromkeys(("I1", "I6"), "resnet18_imagenet"),
    **dict.fromkeys(("I2", "I3", "I5"), "resnet50_imagenet"),
}


def layout(name: str) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    with (LAYOUTS / f"{name}.csv").open() as file:
        return {
            row["key"]: (
                () if row["shape"] == "scalar" else tuple(int(n) for n in row["shape"].split("x")),
                getattr(torch, row["dtype"]),
            )
            for row in csv.DictReader(file)
        }


def index() -> dict[str, dict[str, str]]:
    with (LAYOUTS / "index.csv").open() as file:
        return {row["layout"]: row for row in csv.DictReader(file)}


def published_state(name: str) -> dict[str, torch.Tensor]:
    """A state dict with exactly the published entries, each filled with a value of its own.

    Each tensor is one number expanded to the published shape, so that files of it are small.
    """
    return {
        key: torch.tensor(1e-3 * (i % 97 + 1)).to(dtype).expand(shape)
        for i, (key, (shape, dtype)) in enumerate(layout(name).items())
    }


@pytest.fixture(autouse=True)
def _no_ambient_weights(tmp_path, monkeypatch):
    """Nothing of the machine's own caches takes part in a test."""
    monkeypatch.delenv("SIGMAZERO_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
