"""Two stores sample by sample: what is paired, the differences, and the rows that changed."""

import math
from typing import Any

import pytest

from sigmazero.report.compare import compare
from sigmazero.report.runs import Run
from tests.helpers.cells import cell

INF = math.inf
NAMES = ("before.db", "after.db")


def runs(*cells: Any) -> list[Run]:
    return [Run(info, facts, unit=info.unit, name=info.attack) for info, facts in cells]


BEFORE = runs(
    cell("M1", "fmn", [1, 2, 3, INF, INF, 6]), cell("M1", "vfga", [1] * 6), cell("M1", "fmn", [2] * 6, budget=3)
)
AFTER = runs(cell("M1", "fmn", [1, 1, 5, 4, INF, INF]), cell("M1", "bb", [1] * 6), cell("M1", "fmn", [9] * 6, budget=3))


def test_runs_are_paired_by_attack_and_budget_and_the_others_are_named():
    found = compare(BEFORE, AFTER, NAMES, [2, 5])
    assert [(pair.before.info.attack, pair.before.budget) for pair in found.pairs] == [("fmn", None), ("fmn", 3)]
    assert [line.partition(":")[0] for line in found.alone] == ["Only in before.db", "Only in after.db"]


def test_differences_are_of_the_same_samples():
    found = compare(BEFORE, AFTER, NAMES, [2, 5])
    free = found.pairs[0]
    assert free.differences.tolist() == [0, -1, 2, -INF, 0, INF]
    assert [row for row, *_ in free.changed()] == [3, 5, 2, 1]
    assert found.counts(free) == "6 samples: 2 need fewer changes than before, 2 more, 2 as many"
    lines = {line["figure"]: line for line in found.lines()[:4]}
    assert (lines["ASR 2, %"]["before"], lines["ASR 2, %"]["after"], lines["ASR 2, %"]["difference"]) == (
        "33.3",
        "33.3",
        "0",
    )
    assert lines["ASR 5, %"]["difference"] == "+16.7"
    low, high = (float(end.replace("−", "-")) for end in lines["ASR 5, %"]["95 %"].split(" to "))
    assert low < 100 / 6 < high
    assert lines["median (difference: median over the samples)"]["difference"] == "0"
    within = found.lines()[5]
    assert (within["figure"], within["before"], within["after"]) == ("ASR 3, %", "100.0", "0.0")


def test_rows_that_only_one_store_has_are_left_out():
    some = [Run(BEFORE[0].info, BEFORE[0].facts.take(slice(1, 4)), name="fmn")]
    (pair,) = compare(some, AFTER[:1], NAMES).pairs
    assert pair.rows.tolist() == [1, 2, 3]


def test_what_does_not_compare_is_refused_by_name():
    with pytest.raises(ValueError, match=r"before\.db and after\.db have no run in common"):
        compare(BEFORE[:1], AFTER[1:2], NAMES)
    other = runs(cell("M1", "fmn", [1, 2, 3, 4, 5, 6]))
    other[0].facts.label[4] = 7
    with pytest.raises(ValueError, match="row 4"):
        compare(BEFORE[:1], other, NAMES)
    with pytest.raises(ValueError, match="pixel"):
        compare(BEFORE[:1], runs(cell("M1", "fmn", [1] * 6, unit="pixel")), NAMES)
