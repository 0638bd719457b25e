"""What is exported is what is stored; tests/judge and tests/golden read every column of CSV and JSON lines."""

import csv
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from sigmazero.store.export import export
from sigmazero.store.store import Store
from tests.store.making import cell, made

ODD = {"margin": [math.nan, math.inf, -math.inf, 1 / 3], "l0": [math.inf, 1, 2, 3]}


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Two cells with samples, of which some figures are infinite or no numbers, and a cell without samples."""
    path = tmp_path / "runs.db"
    with Store(path, write=True) as store:
        infos = [cell(key, 8, budget=budget, parameters={"stop": math.inf}) for key, budget in (("a", None), ("b", 24))]
        store.register([*infos, cell("c", 5)])
        for seed, info in enumerate(infos):
            facts = made(8, seed)
            for name, values in ODD.items():
                getattr(facts, name)[:4] = values
            store.append(info.key, 0, facts, run=store.begin({}))
    return path


@pytest.mark.parametrize("perturbations", [False, True])
def test_every_format_holds_the_same(stored, tmp_path, perturbations):
    paths = {name: tmp_path / "new" / f"out.{name}" for name in ("csv", "jsonl", "parquet")}
    with Store(stored) as store:
        assert [export(store, path, perturbations) for path in paths.values()] == [16] * 3
    with paths["csv"].open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))

    def refused(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    records = [json.loads(line, parse_constant=refused) for line in paths["jsonl"].read_text("utf-8").splitlines()]
    table = pytest.importorskip("pyarrow.parquet").read_table(paths["parquet"])
    assert [str(table.schema.field(name).type) for name in ("l0", "row")] == ["double", "int64"]
    assert [each["budget"] for each in records] == [None] * 8 + [24] * 8
    assert [line["l0"] for line in lines[:2]] == ["inf", "1.0"]
    for text, *others in zip(lines, records, table.to_pylist(), strict=True):
        assert list(text) == list(others[0]) == list(others[1])
        for other in others:
            for name in ("l0", "margin", "seconds", "forwards"):
                assert np.array_equal(float(text[name]), float(other[name]), equal_nan=True), name
            for name in ("index", "value") if perturbations else ():
                assert [float(each) for each in text[name].split()] == [float(each) for each in other[name]]
    assert json.loads(lines[0]["parameters"]) == records[0]["parameters"] == {"stop": "inf"}


def test_parquet_without_pyarrow_says_what_to_install(stored, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with Store(stored) as store, pytest.raises(ImportError, match="pip install pyarrow, or export to csv"):
        export(store, tmp_path / "out.parquet")
    assert [path.name for path in tmp_path.glob("*out*")] == []


def test_bad_calls_are_named(stored, tmp_path):
    with Store(stored) as store:
        with pytest.raises(ValueError, match=r"out.xlsx: name a file that ends in \.csv, \.jsonl or \.parquet"):
            export(store, tmp_path / "out.xlsx")
        with pytest.raises(ValueError, match="is the store itself"):
            export(store, stored)
        with pytest.raises(IsADirectoryError, match="is a folder; name a file in it"):
            export(store, tmp_path)
    with Store(tmp_path / "empty.db", write=True) as empty, pytest.raises(ValueError, match="holds no samples yet"):
        export(empty, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()
