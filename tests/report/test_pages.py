"""Pages: every template renders, texts are escaped, nothing is fetched, curves are drawn as they are read."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from jinja2 import UndefinedError

import sigmazero as sz
from sigmazero.data import Table
from sigmazero.report.pages import curve
from sigmazero.report.pages.page import make_page
from sigmazero.report.pages.render import environment, render
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


def test_columns_of_a_table_are_counted_as_its_user_counts_them(tmp_path):
    number, word = [1.5, None, 2.5, 9.5] * 5, ["a", "b", "c", None] * 5
    frame = pd.DataFrame({"number": number, "word": word, "other": range(20), "y": [0, 1] * 10})
    table = Table.from_frame(frame, "y")
    assert len(table.features) > 3
    model = torch.nn.Linear(len(table.features), 2).double().requires_grad_(False)
    model.weight[:] = torch.tensor([1.0, -1.0])[:, None]
    model.bias[:] = torch.tensor([-15.0, 15.0])
    sz.evaluate(model, table, ["sigma-zero"], store=tmp_path / "s.db", steps=20, name="net")
    with Store(tmp_path / "s.db") as store:
        text = make_page(store, no_inputs)
    assert re.search(r"of 3\s+features", text)
    assert f"of {len(table.columns) + 2} features" not in text


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


def test_a_curve_of_many_jumps_stays_small():
    changes = np.random.default_rng(0).random(20_000) * 1000
    made = curve.chart("c", "", [curve.Series("a", "red", changes, shaded=True)], end=1000.0, unit="cost")
    assert len(made["series"][0]["line"]) < 20_000
    assert len(made["data"]["ks"]) <= curve.READ
