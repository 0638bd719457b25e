"""The script that trains networks on tables: repeatable, and its changes are legal."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import sigmazero as sz
from sigmazero.data import Table
from tests.benchmarks.legal import adult

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "src" / "sigmazero" / "data" / "bundled" / "adult-sample.csv"


@pytest.fixture(scope="module")
def script() -> Any:
    found = importlib.util.spec_from_file_location("train_table", ROOT / "scripts" / "train_table.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_trained_twice_it_is_the_same_file(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        given = [str(TABLE), "--epochs", "2", "--changes", "2", "--hidden", "8", "--out", str(tmp_path / name)]
        monkeypatch.setattr(sys, "argv", ["train_table.py", *given])
        script.main()
    torch.use_deterministic_algorithms(False)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_what_it_trains_against_is_legal(script: Any) -> None:
    table = Table.read(TABLE)
    rows = table.rows(dtype=torch.float32).limit(100)
    columns = table.space.columns((len(table.features),))
    moves = script.Moves(rows.images, columns, torch.Generator().manual_seed(0))
    many = torch.arange(100) % 4
    points = script.worse(sz.models.load("adult-mlp"), rows.images, rows.labels, moves, many, 6)
    assert rows.names is not None
    judged = [adult(rows.names, *pair) for pair in zip(rows.images.tolist(), points.tolist(), strict=True)]
    assert not any(wrong for wrong, _, _ in judged)
    # A number drawn by chance may be the one that was there.
    assert all(changes <= most for (_, changes, _), most in zip(judged, many.tolist(), strict=True))
    assert sum(changes for _, changes, _ in judged) > 120
