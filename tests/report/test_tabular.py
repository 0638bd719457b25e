"""Reports of tables: changes by name and in the user's units, costs, and numbers of changes that fit the features."""

import re

import numpy as np
import pytest

from sigmazero.report import measure, patterns
from sigmazero.report.html import features
from sigmazero.report.html.page import make_page
from sigmazero.report.html.samples import build
from sigmazero.report.spaces import NamedSite, changes_of, is_table, named_sites, sites_of
from sigmazero.store.store import Store
from tests.helpers import loans
from tests.plans import clean, run

PLAN = f"""
{loans.WITH_SPACE}[[grid]]
models = ["net.py:build"]
data = ["loans"]
attacks = ["corner"]
[grid.space]
upper = 1000
"""
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loans")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        loans.write(folder, classes=[EVIL, "granted"])
        run(PLAN, folder / "r.db")
        with Store(folder / "r.db") as opened:
            yield opened


def test_changes_in_words(store):
    info = next(info for info in store.cells() if "one_hot" in (info.space_text or ""))
    sites = named_sites(info)
    assert [(site.name, site.labels, site.cost) for site in sites] == [
        ("age", ("age",), 1.0),
        ("sex", ("sex",), 1.0),
        ("gain", ("gain",), 3.0),
        ("job", ("clerk", "nurse", "cook"), 1.0),
    ]
    before, after = [30, 0, 0.5, 1, 0, 0], [35, 0, 0.25, 0, 1, 0]
    assert [str(change) for change in changes_of(sites, before, after)] == [
        "age: 30 → 35",
        "gain: 0.5 → 0.25",
        "job: clerk → nurse",
    ]
    tied = [NamedSite("sensor", (0, 1), ("left", "right"))]
    assert [str(change) for change in changes_of(tied, [1, 2], [1, 3])] == ["sensor: right 2 → right 3"]
    assert [site.name for site in sites_of(["a", "b"], None)] == ["a", "b"]


def test_numbers_of_changes_fit_the_features(store):
    cells = measure.load(store)
    assert all(is_table(info) for info, _ in cells)
    priced = measure.over(cells, "cost")
    assert [len(cells), len(priced)] == [2, 1]
    assert measure.fitting(priced) == [1, 2, 5]  # a change of each costs 6 together
    assert measure.fitting([cells[0]]) == [1, 2]
    assert measure.fitting([cells[1]]) == [1, 2, 5]
    with pytest.raises(ValueError, match="choose one of changes, cost"):
        measure.over(cells, "price")


def test_features_that_fall_most_often(store):
    info, facts = next((i, store.facts(i.key)) for i, f in measure.load(store) if measure.has_costs(f))
    shares = patterns.fallen(info, facts)
    found = facts.take(facts.outcome == 1)
    spans = zip(found.offsets[:-1], found.offsets[1:], strict=True)
    jobs = np.mean([any(k >= 3 for k in found.index[a:b]) for a, b in spans])
    assert shares[3] == jobs > 0.5  # a category is two features, and one change
    assert shares[1] == 0
    tables = features.build(store, measure.load(store))
    assert len(tables) == 2
    assert next(row[0].text for row in tables[0].rows) == "job"
    assert all(row[1].value for row in tables[0].rows)


def test_the_samples_of_a_page(store):
    (group,) = build(store, measure.load(store), clean(store))
    assert group.lack is None
    assert group.data["classes"] == [EVIL, "granted"]
    first, second = group.data["cells"]
    changes = {tuple(change) for row in first["changes"] for change in row}
    assert ("job", "clerk", "nurse", 1.0) in changes
    assert first["cost"] == store.facts(store.cell_keys()[0]).cost.tolist()
    assert second["cost"] is None
    (few,) = build(store, measure.load(store), clean(store), limit=3)
    assert few.shown == 3

    def gone(info):
        raise FileNotFoundError("no such file")

    (group,) = build(store, measure.load(store), gone)
    assert group.lack == "Changes are not shown: no such file"


def test_a_page_shows_wicked_names_as_text(store):
    page = make_page(store, clean(store))
    assert EVIL not in page
    assert "\\u003cimg src=x onerror=alert(1)\\u003e" in page
    assert re.search(r'<section id="features"', page)
    assert "by cost" in page
    assert "Minimum-cost attacks" in page
