"""What is exported is what is stored."""

import csv
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sigmazero.core.result import Outcome
from sigmazero.store.export import export, names
from sigmazero.store.facts import COLUMNS, KINDS, CellInfo, Facts
from sigmazero.store.store import Store
from tests.store.making import cell

PARAMETERS = {"steps": 100, "step_size": 0.1, "order": "released, with a comma", "stop": math.inf}


def some_facts(n: int, seed: int) -> Facts:
    """Facts with every outcome, infinities, a NaN, and numbers that have no short decimal text."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {name: rng.integers(0, 99, n).astype(kind) for name, kind in KINDS.items()}
    columns["row"] = np.arange(n) * 3
    columns["outcome"] = (np.arange(n) % len(Outcome)).astype(np.int8)
    fooled = columns["outcome"] <= Outcome.FOUND
    counts = np.where(columns["outcome"] == Outcome.FOUND, rng.integers(1, 5, n), 0)
    columns["l0"] = np.where(fooled, counts, np.inf)
    columns["l0_pixel"] = np.where(fooled, counts, np.inf)
    columns["margin"] = rng.normal(size=n) / 3
    columns["margin"][2:5] = math.nan, math.inf, -math.inf
    columns["seconds"] = rng.random(n) * 1e-7
    total = int(counts.sum())
    value = rng.random(total).astype(np.float32)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return Facts(**columns, offsets=offsets, index=rng.integers(0, 784, total), value=value)


def some_cell(key: str, rows: int, budget: int | None) -> CellInfo:
    named: dict[str, Any] = {"model": 'file "net.py":build', "dataset": "mnist", "attack": "σ-zero"}
    return cell(key, rows, budget=budget, steps=100, parameters=PARAMETERS, **named)


CELLS = [(some_cell("a" * 64, 20, None), some_facts(20, 0)), (some_cell("b" * 64, 13, 24), some_facts(13, 1))]


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Two cells with samples, the second in two batches, and one without."""
    path = tmp_path / "runs.db"
    with Store(path, write=True) as store:
        store.register([info for info, _ in CELLS] + [some_cell("c" * 64, 5, None)])
        run = store.begin({})
        store.append("a" * 64, 0, CELLS[0][1], run=run)
        store.append("b" * 64, 8, CELLS[1][1].take(slice(8, None)), run=run)
        store.append("b" * 64, 0, CELLS[1][1].take(slice(0, 8)), run=run)
    return path


@pytest.fixture
def store(stored: Path) -> Iterator[Store]:
    with Store(stored) as opened:
        yield opened


def assert_same(lines: list[dict[str, Any]], perturbations: bool) -> None:
    """Every number of the lines, read with `int` or `float`, is the one that was stored."""
    wanted = [(info, facts, i) for info, facts in CELLS for i in range(len(facts))]
    assert len(lines) == len(wanted)
    for line, (info, facts, i) in zip(lines, wanted, strict=True):
        assert list(line) == names(perturbations)
        assert (line["cell"], line["model"], line["attack"]) == (info.key, info.model, info.attack)
        assert line["outcome"] == Outcome(facts.outcome[i]).name.lower()
        for name in COLUMNS:
            if name != "outcome":
                stored = getattr(facts, name)[i]
                read = float(line[name]) if KINDS[name] is np.float64 else int(line[name])
                assert np.array_equal(read, stored, equal_nan=True), name
        if perturbations:
            start, end = facts.offsets[i : i + 2]
            assert [int(each) for each in line["index"]] == facts.index[start:end].tolist()
            assert [float(each) for each in line["value"]] == facts.value[start:end].tolist()


@pytest.mark.parametrize("perturbations", [False, True])
def test_csv_reads_back(store, tmp_path, perturbations):
    path = tmp_path / "new" / "out.csv"
    assert export(store, path, perturbations) == 33
    with path.open(encoding="utf-8", newline="") as file:
        lines: list[dict[str, Any]] = list(csv.DictReader(file))
    for line in lines if perturbations else []:
        line |= {name: line[name].split() for name in ("index", "value")}
    assert_same(lines, perturbations)
    assert {line["budget"] for line in lines} == {"", "24"}
    assert json.loads(lines[0]["parameters"]) == {**PARAMETERS, "stop": "inf"}
    assert lines[2]["l0"] == "inf"


@pytest.mark.parametrize("perturbations", [False, True])
def test_jsonl_reads_back_and_is_strict_json(store, tmp_path, perturbations):
    path = tmp_path / "out.jsonl"
    assert export(store, path, perturbations) == 33

    def refused(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    lines = [json.loads(line, parse_constant=refused) for line in path.read_text(encoding="utf-8").splitlines()]
    assert_same(lines, perturbations)
    assert [line["budget"] for line in lines] == [None] * 20 + [24] * 13
    assert lines[0]["parameters"] == {**PARAMETERS, "stop": "inf"}


@pytest.mark.parametrize("perturbations", [False, True])
def test_parquet_reads_back(store, tmp_path, perturbations):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "out.parquet"
    assert export(store, path, perturbations) == 33
    read = parquet.read_table(path)
    assert_same(read.to_pylist(), perturbations)
    assert read["budget"].to_pylist() == [None] * 20 + [24] * 13
    assert str(read.schema.field("l0").type) == "double"
    assert str(read.schema.field("row").type) == "int64"


def test_parquet_without_pyarrow_says_what_to_install(store, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="pip install pyarrow, or export to csv"):
        export(store, tmp_path / "out.parquet")
    assert [path.name for path in tmp_path.glob("*out*")] == []


def test_bad_calls_are_named(store, stored, tmp_path):
    with pytest.raises(ValueError, match=r"out.xlsx: name a file that ends in \.csv, \.jsonl or \.parquet"):
        export(store, tmp_path / "out.xlsx")
    with pytest.raises(ValueError, match="is the store itself"):
        export(store, stored)
    with pytest.raises(IsADirectoryError, match="is a folder; name a file in it"):
        export(store, tmp_path)
    with Store(tmp_path / "empty.db", write=True) as empty, pytest.raises(ValueError, match="holds no samples yet"):
        export(empty, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()
