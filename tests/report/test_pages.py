"""Pages: every template renders, texts are escaped, nothing is fetched, curves are drawn as they are read."""

import json
import re

import numpy as np
import pytest
from jinja2 import UndefinedError

from sigmazero.report import formats
from sigmazero.report.latex import to_latex
from sigmazero.report.pages import curve
from sigmazero.report.pages.page import make_page
from sigmazero.report.pages.render import environment, render
from sigmazero.report.runs import groups, load, table_ks
from sigmazero.report.table import minimum_norm
from sigmazero.store import Store
from tests.helpers.stores import BOXES, write_store

EVIL = '<img src=x onerror="alert(1)">'


def no_inputs(_):
    raise ValueError(f"no {EVIL} here")


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    with Store(write_store(tmp_path_factory.mktemp("pages") / "s.db", BOXES)) as store:
        return make_page(store, no_inputs)


def test_a_page_escapes_texts_and_fetches_nothing(page):
    assert "<img" not in page
    assert "&lt;img" in page
    assert not re.findall(r'(?:src|href)="(?!#|data:)', page)
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page


def test_terminal_page_latex_and_leaderboard_give_the_same_k(tmp_path):
    """One rule chooses the numbers of changes, from the strongest attack on each model."""
    with Store(write_store(tmp_path / "s.db", BOXES)) as store:
        runs = [run for run in load(store) if run.info.goal == "untargeted" and run.info.space == "–"]
        made = minimum_norm(groups([run for run in runs if run.unit == "feature"], mix=True))
        wanted = [column.heading for column in made.columns if column.heading.startswith("ASR")]
        assert wanted == [f"ASR {k:g}" for k in table_ks([line.run for line in made.lines])] + ["ASR ∞"]
        text = make_page(store, no_inputs, mix=True)
    heads = re.findall(r">(ASR [^<]+)</th>", text)
    assert set(heads) >= set(wanted)
    assert [head for head in formats.headings(formats.rows(made)) if head.startswith("ASR")] == wanted
    assert [f"{head[4:]}" in to_latex(made) for head in wanted[:-1]] == [True] * (len(wanted) - 1)


def test_data_cannot_end_its_block(tmp_path):
    with Store(write_store(tmp_path / "s.db", BOXES[:1])) as store:
        text = make_page(store, no_inputs)
    blocks = re.findall(r'<script type="application/json" id="data-(\w+)">(.*?)</script>', text, re.DOTALL)
    assert {"charts", "samples", "outcomes", "copies", "maps"} <= {name for name, _ in blocks}
    assert all(json.loads(value) is not None for _, value in blocks)


def test_a_name_that_a_template_does_not_know_is_an_error():
    with pytest.raises(UndefinedError):
        render("report.html", title="x", data={})
    assert environment().autoescape


def heights(path: str) -> dict[float, float]:
    """Read a step path: the height from each place on."""
    found, x = {}, 0.0
    for operation, first, second in re.findall(r"([MHV])([\d.e-]+)(?:,([\d.e-]+))?", path):
        if operation == "M":
            found[0.0] = 100 - float(second)
        elif operation == "H":
            x = float(first)
        else:
            found[x] = 100 - float(first)
    return found


@pytest.mark.parametrize("falling", [False, True])
def test_a_curve_is_drawn_as_the_tooltip_reads_it(falling):
    changes = np.array([0, 3, 3, 7, np.inf])
    made = curve.chart("c", "", [curve.Series("a", "red", changes)], end=10.0, axis="k", falling=falling)
    (drawn,), read = made["series"], made["data"]
    line = heights(drawn["line"])
    for k, rate in zip(read["ks"], read["series"][0]["rate"], strict=True):
        fooled = 100 * float((changes <= k).mean())
        assert rate == pytest.approx(100 - fooled if falling else fooled)
        assert line[max(x for x in line if x <= 10 * k)] == pytest.approx(rate)


def test_a_curve_of_many_jumps_stays_small():
    changes = np.random.default_rng(0).random(20_000) * 1000
    made = curve.chart("c", "", [curve.Series("a", "red", changes, shaded=True)], end=1000.0, axis="cost", word="cost")
    assert len(made["series"][0]["line"]) < 20_000
    assert len(made["data"]["ks"]) <= curve.READ


@pytest.mark.parametrize("end", [1.05, 7.0, 33.6, 52.5, 420.0, 21_000.0])
def test_ticks_are_few_round_numbers_up_to_the_end(end):
    found = curve.ticks(end)
    assert found[0] == 0
    assert found[-1] <= end
    assert 3 <= len(found) <= 8
    assert np.ptp(np.diff(found)) < 1e-9
