"""Pages say how far their attacks are from the truth."""

from dataclasses import replace

import pytest

from sigmazero.attacks import ATTACKS
from sigmazero.report.html import gaps
from sigmazero.truth.suite import entrants
from tests.report.test_html_page import make
from tests.report.test_layout import cell, fill, loaded


@pytest.mark.parametrize("name", entrants())
def test_every_attack_has_shown_its_gap_in_this_version(name):
    found = [line for line in gaps.known() if line["attack"] == name]
    assert [line["version"] for line in found] == [ATTACKS[name].version], (
        f"measure {name}: benchmarks.suite --queries 300 --json, then --table and --known (docs/adding-an-attack.md)"
    )


def test_a_page_has_those_of_its_own_attacks(tmp_path):
    path = fill(tmp_path / "a.db", [cell("M", "vfga", [1, 2]), cell("M", "fmn", [3, 2])])
    (table,) = gaps.build(loaded(path))
    assert [[each.text for each in row] for row in table.rows] == [
        ["vfga", 14.9, 73.5, 57],
        ["fmn", 19.8, 66.0, 289],
    ]
    assert "whose fewest changes are proved" in make(path)


def test_another_version_has_none(tmp_path):
    path = fill(tmp_path / "a.db", [cell("M", "sigma-zero", [1, 2])])
    ((info, facts),) = loaded(path)
    assert gaps.build([(replace(info, version=99), facts)]) == []
