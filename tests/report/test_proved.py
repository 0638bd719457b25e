"""What is proved stands beside what attacks found: in tables, figures and on the page, and only where it exists."""

import re
from dataclasses import replace
from functools import partial
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

from sigmazero.bench.constraints import Allowed
from sigmazero.bench.evaluate import evaluate
from sigmazero.bench.loader import Loader, clean_rows
from sigmazero.bench.proofs import keep_proofs, proof_key
from sigmazero.report import measure, proved
from sigmazero.report.figures.curves import GAP, PROVED, draw_curves, truth_between
from sigmazero.report.html.page import make_page
from sigmazero.report.tables import layout, render
from sigmazero.report.tables.overview import store_rows
from sigmazero.report.tables.text import interval
from sigmazero.store import Store, StoreError
from tests.bench.test_proofs import MODEL, ROWS, TRUTH, N, X, Y

mpl.use("agg")
LEAST = np.where(np.arange(N) == 3, 0, TRUTH).astype(int)  # of one row nothing is proved


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """A store with proofs beside what two attacks found, and the same without."""
    folder = tmp_path_factory.mktemp("proved")
    for name in ("with", "without"):
        evaluate(MODEL, (X, Y), ["sigma-zero", "vfga"], store=folder / f"{name}.db", steps=60)
    key = proof_key(MODEL, "feature", Allowed(), ROWS)
    keep_proofs(folder / "with.db", key, ROWS, LEAST, np.zeros(N), loader=Loader())
    return folder / "with.db", folder / "without.db"


def cells(path):
    with Store(path) as store:
        return measure.load(store)


def known() -> Any:
    """A row without a proof needs one change, being right."""
    return np.maximum(LEAST, 1)


def test_figures_of_what_is_proved(paths):
    info, facts = cells(paths[0])[0]
    found = measure.summary(info, facts, [1, 2, 5])
    assert found["median_least"] == np.median(known())
    for k in (1, 2, 5):
        share = (known() > k).mean()
        assert found[f"proved_{k}"] == (share or None)
        assert share <= 1 - (found[f"asr_{k}"] or 0)
    info, facts = cells(paths[1])[0]
    without = measure.summary(info, facts, [1])
    assert without["median_least"] is without["proved_1"] is None


def test_columns_are_there_only_where_something_is_proved(paths):
    made, plain = (layout.build("minimum-norm", cells(path)) for path in paths)
    added = [column.heading for column in made.columns if column.name.startswith(("median_least", "proved"))]
    most = int(known().max()) - 1
    assert added == ["median ≥", "proved 1", f"proved {most}"]
    assert f"ASR {most}" in [column.heading for column in made.columns]  # so that both ends are told
    assert not any(column.name.startswith(("median_least", "proved")) for column in plain.columns)
    assert f"| proved {most} |" in render.to_markdown(made)
    assert "≥" not in render.to_markdown(plain)
    _, (row, _) = store_rows(measure.table(cells(paths[0])))
    assert row["proved 1"].endswith("%")
    assert "proved 1" not in store_rows(measure.table(cells(paths[1])))[1][0]


def test_the_gap_between_both_ends(paths):
    free = cells(paths[0])
    found = truth_between(free)
    assert found is not None
    best = np.min([measure.changes(facts, "feature") for _, facts in free], axis=0)
    assert found[0].tolist() == best.tolist()
    assert found[1].tolist() == known().tolist()
    assert (found[1] <= found[0]).all()
    assert truth_between(cells(paths[1])) is None
    some = [(free[0][0], free[0][1].take(np.array([5, 2]))), free[1]]
    fewer = truth_between(some)
    assert fewer is not None
    assert fewer[1].tolist() == known()[[2, 5]].tolist()


def test_the_figure_draws_it(paths):
    for path, drawn in zip(paths, (True, False), strict=True):
        figure = draw_curves(cells(path))
        names = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
        assert (PROVED in names) == drawn
        assert figure.get_supxlabel().endswith(GAP) == drawn


def test_the_page_says_it(paths):
    for path, drawn in zip(paths, (True, False), strict=True):
        with Store(path) as store:
            text = make_page(store, partial(clean_rows, store, loader=Loader()))
        assert ("Robust at k = 1" in text) == drawn
        assert ('"proved": true' in text or '"proved":true' in text) == drawn
        assert bool(re.search('"least": ?\\[', text)) == drawn
        assert (PROVED in text) == drawn


def test_shares_that_meet_are_exact():
    assert interval(0.5, 0.5) == "exactly 50.0 %"


def test_costs_are_not_changes(paths):
    info, facts = cells(paths[0])[0]
    assert proved.lower(info, facts) is not None
    assert proved.lower(replace(info, unit=measure.COST), facts) is None


def test_a_report_refuses_a_bound_above_a_point(tmp_path):
    path, key = tmp_path / "s.db", proof_key(MODEL, "feature", Allowed(), ROWS)
    keep_proofs(path, key, ROWS, np.full(N, 50), np.zeros(N), loader=Loader())
    words = r"vfga fools .* certify 1 proves that 50 are needed"
    with pytest.raises(StoreError, match=words):
        evaluate(MODEL, (X, Y), ["vfga"], store=path, steps=30)
    with Store(path) as store, pytest.raises(StoreError, match=words):
        measure.load(store)
