"""The script that trains networks on tables: repeatable, and its changes are legal."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from scripts import train_table

import sigmazero as sz
from sigmazero.data import Table

pytestmark = pytest.mark.slow

TABLE = Path(__file__).parents[2] / "src" / "sigmazero" / "data" / "bundled" / "adult-sample.csv"
FIXED = ("marital-status", "relationship", "race", "sex", "native-country")
ENDS = {"age": (17, 90), "capital-gain": (0, 99999), "capital-loss": (0, 4356), "hours-per-week": (1, 99)}


def words(names: Sequence[str], row: Sequence[float]) -> dict[str, float | str]:
    """A row by column; the columns of a category are exactly one 1 and else 0, or the category is None."""
    found: dict[str, float | str] = {}
    groups: dict[str, list[tuple[str, float]]] = {}
    for name, value in zip(names, row, strict=True):
        group, sign, word = name.partition("=")
        if sign:
            groups.setdefault(group, []).append((word, value))
        else:
            found[name] = value
    for group, members in groups.items():
        ones = [word for word, value in members if value == 1]
        others = [word for word, value in members if value not in (0, 1)]
        found[group] = ones[0] if len(ones) == 1 and not others else "none"
    return found


def judged(names: Sequence[str], before: Sequence[float], after: Sequence[float]) -> tuple[list[str], int]:
    """Return what is illegal in a changed row of Adult, and how many things changed; independent of Space."""
    old, new = words(names, before), words(names, after)
    wrong = [f"{name} changed" for name in FIXED if old[name] != new[name]]
    wrong += [f"{name} has no word" for name, value in new.items() if value == "none"]
    for name, (low, high) in ENDS.items():
        value = new[name]
        if not isinstance(value, float) or value != int(value) or not low <= value <= high:
            wrong.append(f"{name} = {value}")
    if not 0 <= float(new["age"]) - float(old["age"]) <= 5:
        wrong.append("age falls, or rises by more than 5")
    return wrong, sum(old[name] != new[name] for name in old)


def test_trained_twice_it_is_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        given = [str(TABLE), "--epochs", "2", "--changes", "2", "--hidden", "8", "--out", str(tmp_path / name)]
        monkeypatch.setattr(sys, "argv", ["train_table", *given])
        train_table.main()
    torch.use_deterministic_algorithms(False)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_what_it_trains_against_is_legal() -> None:
    table = Table.read(TABLE)
    rows = table.rows(dtype=torch.float32).limit(100)
    columns = table.space.columns((len(table.features),))
    moves = train_table.Moves(rows.images, columns, torch.Generator().manual_seed(0))
    many = torch.arange(100) % 4
    points = train_table.worse(sz.models.load("adult-mlp"), rows.images, rows.labels, moves, many, 6)
    assert rows.names is not None
    found = [judged(rows.names, *pair) for pair in zip(rows.images.tolist(), points.tolist(), strict=True)]
    assert not any(wrong for wrong, _ in found)
    # A number drawn by chance may be the one that was there.
    assert all(changes <= most for (_, changes), most in zip(found, many.tolist(), strict=True))
    assert sum(changes for _, changes in found) > 120
