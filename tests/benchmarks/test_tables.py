"""Attacks on tables with rules: nothing illegal, judged by code that shares nothing with spaces; and that judge."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import sigmazero as sz
from benchmarks import tables
from sigmazero.data import Rows
from tests.benchmarks.legal import adult, page, phishing

pytestmark = pytest.mark.slow

ATTACKS: list[tuple[str, dict[str, Any]]] = [
    ("sigma-zero", {"steps": 40}),
    ("sigma-swap", {"queries": 100}),
    ("sparse-rs", {"steps": 60}),
    ("corner", {"steps": 200}),
]


def run(kind: str, model: torch.nn.Module, rows: Rows, space: sz.Space, name: str, how: dict[str, Any]) -> int:
    """The number of successes, all of them legal and counted as the judge counts."""
    result = sz.get(name, **how).run(
        model, rows.images, rows.labels, space=space, budget=4 if name == "sparse-rs" else None
    )
    found = tables.judged(kind, rows, result)
    assert (found["illegal"], found["miscounted"]) == (0, 0)
    return found["successes"]


@pytest.mark.parametrize(("name", "how"), ATTACKS)
def test_people(name: str, how: dict[str, Any]) -> None:
    for _, model, rows, space in tables.adult():
        assert run("adult", model, rows.limit(12), space, name, how) >= 3


@cache
def pages(folder: Path) -> list[Any]:
    """Networks, rows and space of the phishing pages, read once."""
    return list(tables.phishing(folder / "tabular" / "phishing.arff.gz"))


@pytest.mark.parametrize(("name", "how"), ATTACKS)
def test_pages(name: str, how: dict[str, Any], shared_data: Path) -> None:
    _, model, rows, space = pages(shared_data)[1]
    assert run("phishing", model, rows.limit(8), space, name, how) >= 2


def test_the_judge_of_people_sees_what_is_wrong() -> None:
    rows = sz.data.load("adult-sample", limit=1)
    assert rows.names is not None
    names, row = list(rows.names), rows.images[0].tolist()
    old = dict(zip(names, row, strict=True))
    other = next(name for name in names if name.startswith("race=") and not old[name])
    assert adult(names, row, row) == ([], 0, 0)

    def changed(cells: dict[str, float]) -> list[float]:
        return list({**old, **cells}.values())

    assert adult(names, row, changed({"age": old["age"] + 2, "capital-gain": 7}))[1:] == (2, 4)
    for way in (-1, 6, 0.5):
        assert adult(names, row, changed({"age": old["age"] + way}))[0]
    for wrong in ({"capital-loss": -1.0}, {"hours-per-week": 100.0}, {other: 1.0}):
        assert adult(names, row, changed(wrong))[0]


def test_the_judge_of_pages_sees_what_is_wrong(shared_data: Path) -> None:
    _, _, rows, _ = pages(shared_data)[0]
    assert rows.names is not None
    for row in rows.images[:100].double().tolist():
        good = dict(zip(rows.names, row, strict=True))
        assert page(good) == []
        for name in ("UrlLength", "QueryLength", "NoHttps", "HostnameLength", "PathLength"):
            assert page({**good, name: good[name] + 1})
        for name, value in (
            ("UrlLengthRT", 0.5),
            ("PctExtHyperlinks", 1.5),
            ("NumDashInHostname", 300),
            ("NumDots", -1),
        ):
            assert page({**good, name: value})
    changed = [value + (name == "NumDots") for name, value in zip(rows.names, rows.images[0].tolist(), strict=True)]
    assert phishing(rows.names, rows.images[0].tolist(), changed)[1:] == (1, 1)
