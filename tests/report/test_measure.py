"""The figures of cells, and which cells may stand in one table."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sigmazero.report import intervals, measure
from sigmazero.store.facts import KINDS, CellInfo, Facts

INF = math.inf


def facts_of(l0, row=None, **more) -> Facts:
    """Facts with this l0 in features, its double in pixels, and zeros elsewhere."""
    l0 = np.asarray(l0, dtype=np.float64)
    n = len(l0)
    columns: dict[str, Any] = {name: np.zeros(n, kind) for name, kind in KINDS.items()}
    columns["cost"] = np.full(n, np.nan)
    columns |= {"row": np.arange(n) if row is None else np.asarray(row), "l0": l0, "l0_pixel": 2 * l0}
    columns |= {"outcome": np.where(l0 == 0, 0, np.where(np.isfinite(l0), 1, 2)).astype(np.int8)}
    columns |= {name: np.asarray(value, KINDS[name]) for name, value in more.items()}
    return Facts(**columns, offsets=np.zeros(n + 1, np.int64), index=np.zeros(0, np.int64), value=np.zeros(0))


def cell(key="a", rows=4, **more) -> CellInfo:
    given: dict[str, Any] = {"model": "M1", "dataset": "mnist", "attack": "sigma-zero", "parameters": {"steps": 100}}
    given |= {"version": 1, "steps": 100, "unit": "feature", "goal": "untargeted", "budget": None, "seed": 0}
    given |= {"precision": "fp32", "model_sha256": "m", "data_hash": "d"}
    return CellInfo(key=key, rows=rows, **(given | more))


def test_summary_of_a_minimum_norm_run():
    facts = facts_of(
        [0, 12, 30, INF],
        label=[1, 1, 1, 1],
        clean_prediction=[2, 1, 1, 1],
        outcome=[0, 1, 1, 3],
        forwards=[1, 100, 101, 102],
        backwards=[0, 100, 98, 98],
        seconds=[0, 1, 1, 2],
        returned=[0, 14, INF, INF],
    )
    figures = measure.summary(cell(rows=5), facts)
    assert figures == {
        "samples": 4,
        "missing": 1,
        "clean_accuracy": 0.75,
        "already_wrong": 0.25,
        "asr_10": 0.25,
        "asr_24": 0.5,
        "asr_50": 0.75,
        "asr_inf": 0.75,
        "median_l0": 21,
        "mean_l0": INF,
        "mean_l0_found": 14,
        "returned_asr": 0.5,
        "returned_median_l0": INF,
        "median_least": None,
        **dict.fromkeys(["proved_10", "proved_24", "proved_50", "proved_inf"]),
        "forwards": 76,
        "backwards": 74,
        "kqueries": 0.15,
        "seconds": 1,
        "non_finite": 0.25,
        "unverified": 0,
        "no_start": 0,
    }
    assert measure.summary(cell(unit="pixel"), facts)["median_l0"] == 42
    assert measure.summary(cell(), facts_of([INF]))["mean_l0_found"] is None


def test_summary_with_intervals():
    facts = facts_of([0, 12, 30, INF])
    figures = measure.summary(cell(), facts, ks=(24,), level=0.9)
    assert (figures["asr_24_low"], figures["asr_24_high"]) == intervals.wilson(2, 4, 0.9)
    assert (figures["median_l0_low"], figures["median_l0_high"]) == intervals.bootstrap_median([0, 12, 30, INF], 0.9)
    budgeted = measure.summary(cell(budget=24), facts, level=0.9)
    assert budgeted["asr_24_low"] == figures["asr_24_low"]
    assert budgeted["asr_50_low"] is None
    assert budgeted["median_l0_low"] is None


def test_a_budget_tells_its_own_rate_and_nothing_else():
    figures = measure.summary(cell(budget=24), facts_of([0, 12, 30, INF], forwards=[1, 2, 3, 2]))
    assert figures["asr_24"] == 0.5
    for name in ("asr_10", "asr_50", "asr_inf", "median_l0", "mean_l0", "mean_l0_found"):
        assert figures[name] is None, name
    assert figures["forwards"] == 2
    assert measure.summary(cell(budget=100), facts_of([0, 99, 101]))["asr_100"] == pytest.approx(2 / 3)


def test_no_summary_of_nothing():
    with pytest.raises(ValueError, match=r"cell a \(sigma-zero on M1\) has no samples"):
        measure.summary(cell(), Facts.empty())


def test_table_has_the_same_headings_in_all_rows():
    cells = ((cell(key, budget=budget), facts_of([0, 12, 30, INF])) for key, budget in (("a", None), ("b", 100)))
    free, budgeted = measure.table(cells)
    assert list(free) == list(budgeted)
    assert [name for name in free if name.startswith("asr")] == ["asr_10", "asr_24", "asr_50", "asr_100", "asr_inf"]
    assert (free["cell"], free["attack"], free["asr_100"]) == ("a", "sigma-zero", 0.75)
    assert (budgeted["budget"], budgeted["asr_100"], budgeted["asr_50"]) == (100, 0.75, None)
    assert measure.table([]) == []


@pytest.mark.parametrize(
    "other",
    [
        {"version": 2},
        {"precision": "bf16", "attack": "fmn"},
        {"unit": "pixel", "attack": "fmn"},
        {"data_hash": "e", "model": "M2", "attack": "fmn"},
        {"model_sha256": "n", "attack": "fmn"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_mixtures_are_refused_by_name(other):
    name = next(iter(other))
    cells = [(cell("key-a"), facts_of([1])), (cell("key-b", **other), facts_of([1]))]
    with pytest.raises(ValueError, match=rf"more than one {name} .*key-a.*key-b.*mix=True"):
        measure.table(cells)
    assert len(measure.table(cells, mix=True)) == 2


def test_what_a_table_may_hold():
    first = cell("a")
    others = [
        replace(first, key="b", attack="fmn", version=7),
        replace(first, key="c", model="M2", model_sha256="n"),
        replace(first, key="d", dataset="cifar10", data_hash="e", model="C1", model_sha256="o"),
        replace(first, key="e", steps=1000, budget=24, goal="targeted", seed=1),
    ]
    assert len(measure.table([(info, facts_of([1])) for info in (first, *others)])) == 5
