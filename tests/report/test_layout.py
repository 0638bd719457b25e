import csv
import io
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sigmazero.bench.paper import usual
from sigmazero.report.measure import load
from sigmazero.report.paper import published
from sigmazero.report.tables import layout, render, text
from sigmazero.report.tables.bands import bands
from sigmazero.store.facts import KINDS, CellInfo, Facts
from sigmazero.store.store import Store

INF = math.inf
compare = partial(published.compare, usual=usual())
SIGMA_ZERO = {
    "steps": 1000,
    "smoothing": 0.001,
    "threshold": 0.3,
    "threshold_rate": 0.01,
    "normalize": True,
    "adaptive_threshold": True,
    "projection": True,
    "l0_term": True,
}


def cell(model: str, attack: str, l0: Sequence[float], queries: int = 2000, **more: Any) -> tuple[CellInfo, Facts]:
    """A cell and its facts, as a run would leave them."""
    known: dict[str, Any] = {
        "dataset": "mnist",
        "parameters": {"steps": more.get("steps", 1000)},
        "version": 1,
        "steps": 1000,
        "unit": "feature",
        "goal": "untargeted",
        "budget": None,
        "seed": 0,
        "precision": "fp32",
        "rows": len(l0),
        "model_sha256": f"weights of {model}",
        "data_hash": "rows",
    }
    known |= more
    key = f"{model} {attack} {sorted((k, str(v)) for k, v in known.items())}"
    n = len(l0)
    columns: dict[str, Any] = {name: np.zeros(n, kind) for name, kind in KINDS.items()}
    columns["cost"] = np.full(n, np.nan)
    columns |= {"row": np.arange(n), "l0": np.array(l0, float), "l0_pixel": np.array(l0, float)}
    columns |= {"outcome": np.where(np.isinf(l0), 2, 1).astype(np.int8), "seconds": np.full(n, 0.1 + 0.2)}
    columns |= {"forwards": np.full(n, queries // 2), "backwards": np.full(n, queries - queries // 2)}
    facts = replace(Facts.empty(), **columns, offsets=np.zeros(n + 1, np.int64))
    return CellInfo(key=key, model=model, attack=attack, **known), facts


def fill(path: Path, cells: list[tuple[CellInfo, Facts]], peak: int | None = None) -> Path:
    """A store with these cells."""
    with Store(path, write=True) as store:
        store.register([info for info, _ in cells])
        run = store.begin({"torch": "2"})
        for info, facts in cells:
            store.append(info.key, 0, facts, run=run, peak_device=peak)
    return path


def loaded(path: Path) -> list[tuple[CellInfo, Facts]]:
    with Store(path) as store:
        return load(store)


MINIMUM = [
    cell("M1", "sigma-zero", [10, 20, 30, 60]),
    cell("M1", "bb", [5, INF, INF, INF], 500),
    cell("M1", "ead-paper", [20, 40, 60, INF], 6000),
    cell("M2", "fmn", [1, 2, 3, 4]),
]
FIXED = [
    cell("M1", attack, l0, budget=k, steps=steps)
    for attack, steps, l0 in (("sparse-rs", 2000, [1, 30, 60, 200]), ("pgd-l0-paper", 1000, [60, 70, 80, 90]))
    for k in (24, 50, 100)
]


def test_blocks_from_the_least_to_the_most_effective(tmp_path):
    made = layout.build("minimum-norm", loaded(fill(tmp_path / "a.db", MINIMUM, peak=3 * 2**29)))
    assert [[line.info.attack for line in block] for block in made.blocks] == [
        ["bb", "ead-paper", "sigma-zero"],
        ["fmn"],
    ]
    assert [column.name for column in made.columns] == [
        "asr_10", "asr_24", "asr_50", "asr_inf", "median_l0", "seconds", "kqueries", "memory_gb",
    ]  # fmt: skip
    bb, ead, sigma = made.blocks[0]
    assert bb.figures["median_l0"] == INF
    assert sigma.figures["kqueries"] == 2.0
    assert ead.figures["memory_gb"] == 1.5
    assert "steps 1000" in made.caption
    assert "samples 4" in made.caption


def test_bold_infinity_and_markdown_columns():
    made = render.to_markdown(layout.build("minimum-norm", MINIMUM, (24, 50)))
    table = [line for line in made.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert table[2].split("|")[1:7] == [" M1 ", " bb ", " 25.0 ", " 25.0 ", " 25.0 ", " ∞ "]
    assert table[4].split("|")[1:7] == ["  ", " sigma-zero ", " **50.0** ", " **75.0** ", " **100.0** ", " **25** "]
    assert "**" not in table[5]  # alone in its block, it wins nothing


def test_a_fixed_budget_line_takes_a_run_per_budget():
    made = layout.build("fixed-budget", [*FIXED, *MINIMUM])
    (block,) = made.blocks
    assert [line.info.attack for line in block] == ["pgd-l0-paper", "sparse-rs"]
    assert [block[1].figures[f"asr_{k}"] for k in (24, 50, 100)] == [0.25, 0.5, 0.75]
    assert "steps" in made.words  # they differ
    fewer = layout.build("fixed-budget", FIXED[:-3] + FIXED[-2:])
    lacking = fewer.blocks[0][0]
    assert lacking.info.attack == "pgd-l0-paper"
    assert lacking.figures["asr_24"] is lacking.figures["kqueries"] is None


def test_csv_reads_to_the_same_numbers():
    made = compare(layout.build("minimum-norm", MINIMUM))
    rows = list(csv.DictReader(io.StringIO(render.to_csv(made))))
    lines = [line for block in made.blocks for line in block]
    for row, line in zip(rows, lines, strict=True):
        assert row["attack"] == line.info.attack
        for column in made.columns:
            value, theirs = line.figures[column.name], line.paper.get(column.name)
            assert (float(row[column.name]) if row[column.name] else None) == value
            assert (float(told) if (told := row[f"{column.name}_paper"]) else None) == theirs
    assert rows[0]["median_l0"] == "inf"
    assert float(rows[0]["seconds"]) == 0.1 + 0.2


def test_the_papers_figures_stand_beside():
    made = compare(layout.build("minimum-norm", MINIMUM))
    bb, ead, sigma = made.blocks[0]
    printed = {"asr_24": 0.8379, "asr_50": 0.9998, "asr_inf": 1.0, "median_l0": 16, "seconds": 0.31, "kqueries": 2.0}
    assert sigma.paper == pytest.approx({**printed, "memory_gb": 0.04})
    assert ead.paper["median_l0"] == 49
    assert render.beside(sigma, made.columns[1]) == "83.8 (−33.8)"
    assert render.beside(bb, made.columns[4]) == "18 (+∞)"
    fixed = compare(layout.build("fixed-budget", FIXED))
    pgd, rs = fixed.blocks[0]
    assert pgd.paper["asr_50"] == pytest.approx(0.999)
    assert [rs.paper["asr_24"], rs.paper["kqueries"]] == [0.7954, 0.83]  # at half of its steps


OTHERS = (
    {"parameters": {"threshold": 0.1}},
    {"origin": {"model": {"spec": "M1", "weights": "mine.pt"}}},
    {"origin": {"data": {"source": "fashion-mnist"}}},
)


def test_what_the_paper_lacks_or_swapped_is_a_dash():
    odd = [cell("C11", a, [1, 2], budget=24, dataset="cifar10") for a in ("sigma-zero", "mine")]
    lines = {line.info.attack: line for line in compare(layout.build("fixed-budget", odd)).blocks[0]}
    assert set(lines["sigma-zero"].paper) == {"asr_24", "memory_gb"}
    assert lines["mine"].paper == {}
    for other in ({"goal": "targeted"}, {"unit": "pixel"}, {"origin": {"model": {"spec": "net.py:build"}}}, *OTHERS):
        made = compare(layout.build("minimum-norm", [cell("M1", "sigma-zero", [1], **other)]))
        assert made.blocks[0][0].paper == {}
    sparse = [cell("M1", "sparsefool-paper", [9], steps=20), cell("M1", "fmn", [3], steps=100)]
    fool = compare(layout.build("minimum-norm", sparse)).blocks[0][0]
    assert fool.paper["asr_50"] > 0  # found by the steps of the attacks beside it


def test_mixtures_are_refused_or_told_apart():
    mixed = [cell("M1", "fmn", [1, 2]), cell("M1", "fmn", [1, 3], version=2)]
    with pytest.raises(ValueError, match="more than one version"):
        layout.build("minimum-norm", mixed)
    made = layout.build("minimum-norm", mixed, mix=True)
    assert made.words == ("model", "attack", "version")


def test_incomplete_cells_say_so():
    made = layout.build("minimum-norm", [cell("M1", "fmn", [1, 2], rows=5), cell("M1", "bb", [1, 2])])
    assert {line.words["samples"] for line in made.blocks[0]} == {"2 of 5", "2"}


@pytest.mark.parametrize(
    ("name", "cells", "words"),
    [
        ("minimum-norm", FIXED, "ask for fixed-budget"),
        ("fixed-budget", MINIMUM, "ask for minimum-norm"),
        ("fixed-budget", [], "run a plan"),
        ("other", MINIMUM, "choose one of minimum-norm"),
    ],
)
def test_errors_name_the_fix(name, cells, words):
    with pytest.raises(ValueError, match=words):
        layout.build(name, cells)


WIDE = [
    cell(model, attack, l0, dataset=data, data_hash=data)
    for model, data in (("M1", "mnist"), ("C1", "cifar10"), ("M2", "mnist"), ("M3", "mnist"))
    for attack, l0 in (("sigma-zero", [1, 2]), ("bb", [9, INF]), ("fmn", [3, 4]))
    if (model, attack) != ("M2", "bb")
]


def test_models_beside_each_other():
    made = replace(layout.build("minimum-norm", WIDE), across=2)
    found = bands(made)
    assert [band.headings for band in found] == [("M1, mnist", "M2, mnist"), ("M3, mnist",), ("C1, cifar10",)]
    first = found[0]
    assert [[line and line.info.attack for line in row] for row in first.rows] == [
        ["bb", None], ["fmn", "fmn"], ["sigma-zero", "sigma-zero"],
    ]  # fmt: skip
    table = render.tables(made)[0]
    assert table[0]["M2, mnist median"] == text.NONE
    assert table[0]["M1, mnist median"] == "∞"
    assert [row["attack"] for row in table] == ["bb", "fmn", "sigma-zero"]


def test_models_beside_each_other_have_the_figures_of_those_below():
    made = compare(layout.build("minimum-norm", WIDE))
    below = {(line.info.model, line.info.attack): line for block in made.blocks for line in block}
    for band in bands(replace(made, across=2)):
        for row in band.rows:
            for heading, line in zip(band.headings, row, strict=True):
                if line is not None:
                    assert below[heading.split(",")[0], line.info.attack] is line
    shown = render.to_markdown(replace(made, across=2))
    tables = [part for part in shown.split("\n\n") if part.startswith("|")]
    assert len(tables) == 3
    assert all(len({line.count("|") for line in table.splitlines()}) == 1 for table in tables)
    assert shown.count("**1.5**") == 4  # sigma-zero's median wins against each model


def test_two_settings_of_one_name_keep_their_rows():
    twice = [cell("M1", "z", [5, 6]), cell("M1", "z", [1, 2], parameters={"steps": 1000, "threshold": 1})]
    made = replace(layout.build("minimum-norm", [*twice, cell("M2", "z", [3])]), across=2)
    (band,) = bands(made)
    assert [tuple(line is not None for line in row) for row in band.rows] == [(True, True), (True, False)]
    assert render.band_rows(made, band)[0]["samples"] == "2 / 1"
