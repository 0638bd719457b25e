import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from sigmazero.report.html import charts, samples
from sigmazero.report.html.page import make_page
from sigmazero.report.tables import latex, layout, render
from sigmazero.store.store import Store
from tests.cli.conftest import sigmazero  # noqa: F401
from tests.plans import PLAN, clean, run
from tests.report.test_layout import FIXED, MINIMUM, cell, compare, fill, loaded

INF = float("inf")


def data(text: str, name: str):
    return json.loads(re.findall(rf'id="data-{name}">(.*?)</script>', text)[0])


def make(path, **more) -> str:
    with Store(path) as store:
        return make_page(store, clean(store), **more)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Stores that were filled already."""
    return tmp_path_factory.mktemp("stores")


@pytest.fixture
def ran(folder, stores):
    if not (stores / "run.db").exists():
        run(PLAN, stores / "run.db")
    return Path(shutil.copy(stores / "run.db", folder))


def test_tables_are_those_of_the_command_line(tmp_path):
    path = fill(tmp_path / "a.db", [*MINIMUM, *FIXED])
    text = make(path, ks=(10, 50))
    for name, ks in (("minimum-norm", (10, 50)), ("fixed-budget", ())):
        made = layout.build(name, loaded(path), ks)
        assert data(text, "copies")[name] == {
            "LaTeX": latex.to_latex(made),
            "CSV": render.to_csv(made),
            "Markdown": render.to_markdown(made),
        }
    assert "83.8" not in text
    assert "paper" in make(path, compare=compare)


def test_curves_are_the_facts(tmp_path):
    cells = [
        cell("M", "sigma-zero", [1, 2, 4, INF]),
        cell("M", "fmn", [9, 9, 2, 3]),
        cell("M", "pgd-l0", [5] * 4, budget=5),
    ]
    path = fill(tmp_path / "a.db", cells)
    chart = data(make(path), "charts")["curve-0"]
    at = dict(zip(chart["ks"], zip(*(one["rate"] for one in chart["series"]), strict=True), strict=True))
    assert [one["label"] for one in chart["series"]] == ["sigma-zero", "fmn", "best of all"]
    assert at[0] == (0, 0, 0)
    assert at[2] == (50, 25, 75)
    assert at[4] == (75, 50, 100)
    assert at[chart["end"]] == (75, 100, 100)
    assert 5 in at
    assert chart["points"][0]["k"] == 5
    assert chart["points"][0]["rate"] == 100
    assert chart["points"][0]["low"] < 100


def test_long_curves_are_thinned_and_stay_exact():
    l0 = np.random.default_rng(0).integers(0, 100_000, 5000).astype(float)
    ks = charts.places([l0], 105_000.0)
    assert len(ks) < 2 * charts.POINTS
    rates = charts.rates(l0, ks)["rate"]
    assert rates == [round(100 * float((l0 <= k).mean()), 3) for k in ks]


def test_samples_are_rebuilt_from_what_is_embedded(ran):
    (group,) = data(make(ran), "samples")
    images = np.load("mine.npz")["images"]
    assert group["shape"] == [3, 4, 5]
    assert np.array_equal(decoded(group["images"]), np.round(images * 255).astype(np.uint8).ravel())
    with Store(ran) as store:
        infos = store.cells()
        for one, info in zip(group["cells"], infos, strict=True):
            facts = store.facts(info.key)
            assert one["counts"] == np.diff(facts.offsets).tolist()
            assert decoded(one["index"], "<u2").tolist() == facts.index.tolist()
            assert (decoded(one["value"]) == np.round(facts.value * 255)).all()
            assert one["queries"] == (facts.forwards + facts.backwards).tolist()


def decoded(text: str, kind: str = "u1"):
    import base64

    return np.frombuffer(base64.b64decode(text), kind)


def test_fewer_samples_are_said(ran):
    text = make(ran, limit=5)
    assert data(text, "samples")[0]["rows"] == [0, 5, 11, 17, 23]
    assert "5 of 24 samples are on this page, evenly spread; --samples sets how many" in text
    assert len(make(ran, limit=0)) < len(text)
    with pytest.raises(ValueError, match=r"-1 samples: give 0 or more"):
        make(ran, limit=-1)


def test_large_images_do_not_burst_the_page(ran, monkeypatch):
    monkeypatch.setattr(samples, "ROOM", 4000)
    found = data(make(ran), "samples")[0]
    assert 0 < len(found["rows"]) < 24
    assert len(json.dumps(found)) < 3 * 4000


@pytest.mark.parametrize("harm", ["gone", "other"])
def test_without_the_data_the_page_has_no_pictures_and_says_so(ran, harm):
    held = dict(np.load("mine.npz"))
    ran.with_name("mine.npz").unlink()
    if harm == "other":
        np.savez("mine.npz", images=1 - held["images"], labels=held["labels"])
    text = make(ran)
    assert "images" not in data(text, "samples")[0]
    assert len(data(text, "samples")[0]["rows"]) == 24
    assert "No pictures: " in text
    assert ("mine.npz" if harm == "gone" else "other rows here") in text


def test_inputs_that_are_no_images(folder):
    np.savez("mine.npz", images=torch.rand(8, 60).numpy(), labels=np.zeros(8, np.int64))
    run(PLAN, folder / "run.db")
    text = make(folder / "run.db")
    (group,) = data(text, "samples")
    assert "images" not in group
    shown = [change for cell in group["cells"] for row in cell["changes"] for change in row]
    assert {name.partition(" ")[0] for name, *_ in shown} == {"feature"}  # flat inputs are a table, by number


def test_budgets_alone_make_a_page(tmp_path):
    text = make(fill(tmp_path / "a.db", FIXED))
    assert "of the samples fall to 24 changed features, by sparse-rs" in text
    assert "25.0 %" in text


def test_nothing_to_show_is_an_error(tmp_path):
    path = fill(tmp_path / "a.db", [])
    with pytest.raises(ValueError, match="run a plan into it first"):
        make(path)


def test_the_doctor_is_asked_and_quoted(folder):
    with (folder / "net.py").open("a") as file:
        file.write("\ndef soft(): return torch.nn.Sequential(Net(0), torch.nn.Softmax(1))\n")
    run(PLAN.replace("net.py:other", "net.py:soft"), folder / "run.db")
    with Store(folder / "run.db") as store:
        findings = store.findings()
        codes = {info.model: [one["code"] for one in findings[info.key]] for info in store.cells()}
    assert "SZ001" in codes["net.py:soft"]
    assert "SZ001" not in codes["net.py:build"]
    text = make(folder / "run.db")
    assert "<strong>SZ001 warning</strong> net.py:soft on mine" in text
    assert "attacks need logits, whose gradients do not vanish" in text
    assert "The doctor has" in text


def test_a_store_whose_models_were_not_examined_says_so(tmp_path):
    path = fill(tmp_path / "a.db", MINIMUM)
    assert "The doctor was not asked when this store was filled" in make(path)
    with Store(path, write=True) as store:
        assert store.findings() == {}
        for info in store.cells():
            store.diagnose(info.key, [])
    assert "The doctor looked at 2 pairs of model and data and found nothing wrong." in make(path)


def test_failures_are_at_the_top(folder):
    run(PLAN.replace("net.py:other", "net.py:broken"), folder / "run.db")
    text = make(folder / "run.db")
    top = text[text.index('id="summary"') : text.index('id="tables"')]
    assert "sigma-zero against net.py:broken on mine" in top
    assert "no gradients here" in top


def test_the_command_line_writes_the_page(sigmazero, ran):  # noqa: F811
    done = sigmazero("report", ran, "-o", "new/report.html", "--samples", 3, "--k", "5,9")
    assert done.exit_code == 0, done.output
    assert done.stdout == "wrote new/report.html\n"
    text = (ran.parent / "new/report.html").read_text(encoding="utf-8")
    assert "ASR 9" in text
    assert "3 of 24 samples" in text
    for options, words in (
        (["--samples", 3], "write one with -o report.html"),
        (["-o", "a.html", "--table", "minimum-norm"], "--table minimum-norm does not go with a page"),
        (["-o", "a.html", "--standalone"], "--standalone does not go with a page"),
        (["--to", "csv", "-o", ran], "is the store itself"),
        (["--bundle", "site", "--data-dir", "."], "--data-dir says where inputs are that are drawn"),
    ):
        done = sigmazero("report", ran, *options)
        assert done.exit_code == 2
        assert words in done.stderr
    assert not (ran.parent / "a.html").exists()
    assert not (ran.parent / "site").exists()
