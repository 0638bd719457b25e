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


def test_what_does_not_compare_is_refused_by_name():
    with pytest.raises(ValueError, match=r"before\.db and after\.db have no run in common"):
        compare(BEFORE[:1], AFTER[1:2], NAMES)
    other = runs(cell("M1", "fmn", [1, 2, 3, 4, 5, 6]))
    other[0].facts.label[4] = 7
    with pytest.raises(ValueError, match="row 4"):
        compare(BEFORE[:1], other, NAMES)
    with pytest.raises(ValueError, match="pixel"):
        compare(BEFORE[:1], runs(cell("M1", "fmn", [1] * 6, unit="pixel")), NAMES)
