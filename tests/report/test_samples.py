"""The samples of a page: how many fit, what is packed of them, and changes in words."""

import base64

import numpy as np
import pytest

from sigmazero.report import spaces
from sigmazero.report.analysis import changed_sites
from sigmazero.report.pages import samples
from sigmazero.report.runs import groups, load
from sigmazero.store import Store
from tests.helpers import loans
from tests.plans import NET, PLAN, clean, run

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A store of an attack on a table with costs, one-hot groups and wicked names."""
    folder = tmp_path_factory.mktemp("loans")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        loans.write(folder, classes=[EVIL, "granted"])
        run(loans.WITH_SPACE, folder / "r.db")
        with Store(folder / "r.db") as opened:
            yield opened


def test_changes_of_a_table_are_words(table):
    found = groups(load(table))
    made = samples.build(found, clean(table))
    (first,) = made.data["groups"][0]["runs"][:1]
    assert made.data["sets"][0]["classes"] == [EVIL, "granted"]
    assert ("job", "clerk", "nurse", "1") in {tuple(change) for row in first["words"] for change in row}
    assert first["cost"] == [None if np.isinf(each) else each for each in found[0].runs[0].facts.cost]
    assert "index" not in first
    assert made.words[found[0].runs[0].info.key][first["rows"][0]] == first["words"][0]


def test_a_category_counts_as_one_change(table):
    (run_,) = groups(load(table))[0].runs[:1]
    shares, sites = changed_sites(run_), spaces.named_sites(run_.info)
    assert len(shares) == len(sites) < np.prod(run_.info.about["shape"])
    facts = run_.perturbed.take(run_.facts.outcome == 1)
    spans = zip(facts.offsets[:-1], facts.offsets[1:], strict=True)
    (job,) = [place for place, site in enumerate(sites) if site.one_hot]
    assert shares[job] == np.mean([any(k in sites[job].members for k in facts.index[a:b]) for a, b in spans])


@pytest.mark.parametrize(("limit", "shown"), [(0, 0), (3, 3), (10_000, None)])
def test_a_limit_spreads_the_samples(table, limit, shown):
    made = samples.build(groups(load(table)), clean(table), limit)
    rows = made.data["sets"][0]["rows"]
    assert len(rows) == (shown if shown is not None else len(made.rows[0]))
    assert bool([note for note in made.notes if "evenly spread" in note]) == (limit < 10)
    with pytest.raises(ValueError, match="-1"):
        samples.build(groups(load(table)), clean(table), -1)


def test_inputs_that_are_gone_are_named_and_the_numbers_stay(table):
    def gone(info):
        raise FileNotFoundError("no such file")

    made = samples.build(groups(load(table)), gone)
    assert made.notes == ["Changes are not shown: no such file"]
    assert "words" not in made.data["groups"][0]["runs"][0]


def test_images_are_bytes_and_changes_are_exact(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    x = np.random.default_rng(0).random((5, 3, 4, 5), dtype=np.float32)
    np.savez("mine.npz", images=x, labels=np.arange(5) % 4)
    plan = PLAN.replace('"net.py:build", "net.py:other"', '"net.py:build"').replace(
        '["sigma-zero", "fmn", "vfga"]', '["fmn"]'
    )
    run(plan, tmp_path / "r.db")
    with Store(tmp_path / "r.db") as store:
        made = samples.build(groups(load(store)), clean(store))
        facts = store.facts(store.cell_keys()[0])
    (held,), (packed,) = made.data["sets"], made.data["groups"][0]["runs"]
    pixels = np.frombuffer(base64.b64decode(held["images"]), np.uint8).reshape(5, *held["shape"])
    assert np.abs(pixels - 255 * x).max() <= 0.51
    assert np.frombuffer(base64.b64decode(packed["index"]), np.uint16).tolist() == facts.index.tolist()
    assert packed["counts"] == np.diff(facts.offsets).tolist()
