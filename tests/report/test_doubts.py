"""What the facts of a store say against its own figures, and where it is shown."""

import math

import pytest

from sigmazero.cli.report_site import doubted
from sigmazero.report import doubts, measure
from sigmazero.store.store import Store
from tests.cli.conftest import sigmazero  # noqa: F401
from tests.report.test_html_page import make
from tests.report.test_layout import cell, fill

NONE = [math.inf] * 20
FOUND = [5.0] * 20


def _codes(cells):
    return [(info.attack, finding.code, finding.severity) for info, finding in doubts.doubts(cells)]


def test_blind_search_that_finds_what_gradients_do_not():
    masked = [cell("M", "sigma-zero", NONE), cell("M", "sparse-rs-min", FOUND[:3] + NONE[3:])]
    assert _codes(masked) == [("sparse-rs-min", "SZ014", "error")]
    lucky = [cell("M", "sigma-zero", NONE), cell("M", "sparse-rs-min", FOUND[:2] + NONE[2:])]
    assert _codes(lucky) == []
    # Fewer changes are no sign, other models, questions and unknown attacks are no comparison.
    assert _codes([cell("M", "sigma-zero", [9.0] * 20), cell("M", "sparse-rs-min", FOUND)]) == []
    assert _codes([cell("M", "sigma-zero", NONE), cell("N", "sparse-rs-min", FOUND)]) == []
    assert _codes([cell("M", "sigma-zero", NONE, budget=3), cell("M", "sparse-rs-min", FOUND)]) == []
    assert _codes([cell("M", "sigma-zero", NONE), cell("M", "mine", FOUND)]) == []


@pytest.mark.parametrize(("after", "said"), [(16, True), (18, False)])
def test_success_that_falls_when_steps_grow(after, said):
    short = cell("M", "sigma-zero", FOUND, steps=100)
    long = cell("M", "sigma-zero", FOUND[:after] + NONE[after:], steps=1000)
    assert _codes([long, short]) == ([("sigma-zero", "SZ031", "error")] if said else [])
    assert _codes([short, cell("M", "fmn", NONE, steps=1000)]) == []


def test_pages_and_cards_show_an_error_as_one(tmp_path):
    path = fill(tmp_path / "a.db", [cell("M", "sigma-zero", NONE), cell("M", "sparse-rs-min", FOUND)])
    with Store(path) as store:
        cells = measure.load(store)
        told = doubts.findings(store, cells)
    text = make(path)
    assert "The doctor has 1 error about the models (SZ014): figures may mean nothing" in text
    assert "SZ014 error" in text
    assert doubted(cells[0][0], cells, told) == {"doubtful": "SZ014: A black-box attack beat the gradient-based ones"}
    assert [each.code for each in doubts.errors(told)] == ["SZ014"]
    assert doubts.errors(told, ["SZ014"]) == []


def test_a_table_says_what_makes_it_doubtful(sigmazero, tmp_path):  # noqa: F811
    path = fill(tmp_path / "a.db", [cell("M", "sigma-zero", NONE), cell("M", "sparse-rs-min", FOUND)])
    done = sigmazero("report", path)
    assert done.exit_code == 0, done.output
    assert "error: SZ014: A black-box attack beat the gradient-based ones. 20 of 20 samples" in done.stderr
