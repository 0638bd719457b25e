"""The encoder: tables to tensors and back, a space for them, a layer that scales, and a file that runs nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sigmazero.data import DataError, Encoder
from sigmazero.data.table import RawTable

WORDS = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
WHOLE = st.integers(-(1 << 24), 1 << 24)
REAL = st.floats(-1e6, 1e6, width=32)
JOBS = [{"age": 30, "job": "clerk", "rate": 0.5}, {"age": 52, "job": "nurse", "rate": 1.25}]


def fitted(rows: list[dict[str, Any]] = JOBS) -> Encoder:
    categories = [name for name, value in rows[0].items() if isinstance(value, str)]
    return Encoder.fit(RawTable.of(rows, list(rows[0])), categories=dict.fromkeys(categories))


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Any]]:
    kinds = draw(st.lists(st.sampled_from([WORDS, WHOLE, REAL]), min_size=1, max_size=4))
    row = st.fixed_dictionaries({f"column {k}": kind for k, kind in enumerate(kinds)})
    return draw(st.lists(row, min_size=1, max_size=6))


@given(tables())
def test_round_trip(rows: list[dict[str, Any]]) -> None:
    encoder = fitted(rows)
    x = encoder.encode(rows)
    assert encoder.decode(x) == rows  # numbers as numbers, words as words
    assert torch.equal(encoder.encode(encoder.decode(x)), x)
    assert x.shape == (len(rows), len(encoder.names))
    space = encoder.space()
    columns = space.columns((len(encoder.names),))
    assert (x.double().numpy() >= np.float32(columns.lower)).all()
    assert (x.double().numpy() <= np.float32(columns.upper)).all()
    assert [group.name for group in columns.groups] == [c.name for c in encoder.columns if c.words]


@given(tables())
def test_files_keep_everything(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> None:
    encoder, path = fitted(rows), tmp_path_factory.mktemp("encoder") / "own.json"
    encoder.save(path)
    assert Encoder.read(path) == encoder


def test_the_order_is_that_of_the_fit_whatever_the_rows() -> None:
    encoder = fitted()
    assert encoder.names == ("age", "job=clerk", "job=nurse", "rate")
    assert encoder.encode([{"rate": 1, "job": "nurse", "age": 30, "more": "x"}]).tolist() == [[30, 0, 1, 1]]


def test_the_layer_standardises_numbers_alone() -> None:
    scaled = fitted().scaler()(fitted().encode(JOBS))
    assert torch.allclose(scaled, torch.tensor([[-1.0, 1, 0, -1], [1, 0, 1, 1]]))
    same = fitted([{"age": 7}, {"age": 7}])
    assert same.scaler()(same.encode([{"age": 7}])).tolist() == [[0.0]]


def test_what_may_change_is_said_by_column() -> None:
    change: dict[str, dict[str, Any]] = {
        "job": {"direction": "none"},
        "age": {"direction": "up", "around": 5},
        "rate": {"cost": 3},
    }
    space = fitted().space(change)
    columns = space.columns((4,))
    assert columns.kind == ["integer", "binary", "binary", "real"]
    assert columns.rise[0].tolist() == [True, False, False, True]
    assert columns.fall[0].tolist() == [False, False, False, True]
    assert (columns.around[0], columns.cost.tolist()) == (5, [1, 1, 1, 3])
    assert (columns.lower[0], columns.upper[0], columns.upper[3]) == (30, 52, 1.25)
    with pytest.raises(DataError, match="change: there is no column 'jbo'"):
        fitted().space({"jbo": {"cost": 2}})
    with pytest.raises(DataError, match="change of 'job': there is no 'cots'; allowed: kind, lower"):
        fitted().space({"job": {"cots": 2}})
    with pytest.raises(DataError, match="change: space: direction='upp' of feature 'age' is not one of"):
        fitted().space({"age": {"direction": "upp"}})


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"job": "cook"}, r"rows: row 0, column 'job': 'cook' is none of its words \(clerk, nurse\); correct it"),
        ({"age": 30.5}, "row 0, column 'age': '30.5' is no whole number"),
        ({"age": "old"}, "row 0, column 'age': 'old' is no number"),
        ({"age": "nan"}, "row 0, column 'age': 'nan' is no number"),
        ({"rate": "1_0"}, "row 0, column 'rate': '1_0' is no number"),
        ({"rate": "1e999"}, "row 0, column 'rate': '1e999' is too large"),
        ({"age": 1 << 25}, "a value of column 'age' is 3.35544e[+]07, beyond 1.67772e[+]07"),
    ],
)
def test_values_that_no_table_of_these_has(row: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        fitted().encode([{**JOBS[0], **row}])


def test_rows_and_tensors_of_another_shape() -> None:
    with pytest.raises(DataError, match="rows: row 0 has no column 'job'"):
        fitted().encode([{"age": 30, "rate": 1}])
    with pytest.raises(DataError, match=r"shape \(1, 3\) is not \(rows, 4\)"):
        fitted().decode(torch.zeros(1, 3))
    with pytest.raises(DataError, match="the columns of 'job' are not one 1 and else 0"):
        fitted().decode(torch.tensor([[30.0, 0.5, 0.5, 1.0]]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["clerk", "=1+1"], "'=1[+]1', which is a formula to spreadsheets"),
        (["clerk", "two\nlines"], "a name has 1 to 200 visible characters"),
        (["clerk", "x" * 201], "a name has 1 to 200 visible characters"),
        ([f"word {k}" for k in range(1001)], "column 'job' has 1001 different words; drop it"),
    ],
)
def test_words_that_are_no_categories(words: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        fitted([{"job": word} for word in words])


@pytest.mark.parametrize(
    "change",
    [
        lambda held: held.update(format="other"),
        lambda held: held.update(columns=[]),
        lambda held: held.pop("columns"),
        lambda held: held["columns"][0].update(kind="magic"),
        lambda held: held["columns"][0].update(deviation=0),
        lambda held: held["columns"][0].update(mean="x"),
        lambda held: held["columns"][0].update(extra=1),
        lambda held: held["columns"][1].update(words=["a", "a"]),
        lambda held: held["columns"][1].update(words=3),
        lambda held: held["columns"].append(held["columns"][0]),
    ],
)
def test_files_that_hold_no_encoder(tmp_path: Path, change: Any) -> None:
    fitted().save(tmp_path / "own.json")
    held = json.loads((tmp_path / "own.json").read_text())
    change(held)
    (tmp_path / "own.json").write_text(json.dumps(held))
    with pytest.raises(DataError, match=r"own.json: no encoder can be read from it \([^\n]+\); save one with save"):
        Encoder.read(tmp_path / "own.json")


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, '{"format": 3}', "\0"])
def test_texts_that_are_no_encoder(tmp_path: Path, text: str) -> None:
    (tmp_path / "own.json").write_text(text)
    with pytest.raises(DataError, match="no encoder can be read"):
        Encoder.read(tmp_path / "own.json")
