"""A traced search as an animation, in a file and on the page."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from sigmazero.report.figures.figure import Request
from sigmazero.report.figures.path import FIGURE, questions
from sigmazero.report.html import paths
from sigmazero.report.html.page import make_page
from sigmazero.report.measure import load
from sigmazero.store.store import Store
from tests.plans import NET, PLAN, clean, run
from tests.report.test_html_page import data

TRACED = PLAN.replace('["net.py:build", "net.py:other"]', '["net.py:build"]').replace(
    '["sigma-zero", "fmn", "vfga"]', '["sigma-zero"]'
) + ("\n[attacks.sigma-zero]\nsteps = 10\ntrace = true\n")


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traced")
    (folder / "net.py").write_text(NET)
    rng = np.random.default_rng(1)
    np.savez(folder / "mine.npz", images=rng.random((6, 3, 4, 5), np.float32), labels=rng.integers(0, 4, 6))
    with pytest.MonkeyPatch.context() as here:
        here.chdir(folder)
        run(TRACED, folder / "a.db")
    return folder


@pytest.fixture
def store(traced, monkeypatch):
    monkeypatch.chdir(traced)
    with Store("a.db") as opened:
        yield opened


def found(store):
    (info,) = store.cells()
    facts = store.facts(info.key)
    return info, facts, np.flatnonzero((facts.outcome == 1) & (facts.l0 > 0)).tolist()


def test_a_path_is_a_file_that_ends_with_what_was_found(store, tmp_path):
    _, facts, rows = found(store)
    row = int(facts.row[rows[-1]])
    asked = Request(tmp_path / "a.gif", store, load(store), clean(store), options={"row": row})
    (path,) = FIGURE.write(asked)
    info = store.cells()[0]
    trace = store.trace(info.key, rows[-1])
    with Image.open(io.BytesIO(path.read_bytes())) as image:
        assert image.format == "GIF"
        assert getattr(image, "n_frames", 0) <= len(questions(trace))  # frames that look the same are one
    with pytest.raises(ValueError, match="no successful search of row 99"):
        FIGURE.write(Request(tmp_path / "b.gif", store, load(store), clean(store), options={"row": 99}))
    with pytest.raises(ValueError, match=r"end the name in one of \.gif"):
        FIGURE.write(Request(tmp_path / "b.png", store, load(store), clean(store)))


def test_questions_begin_clean_and_end_with_the_last_record(store):
    info, _, rows = found(store)
    for place in rows:
        trace = store.trace(info.key, place)
        for most in (3, 8, 40):
            shown = questions(trace, most)
            assert (shown[0], shown[-1]) == (0, trace.records[-1])
            assert len(shown) <= most + 1


def test_the_page_has_the_points_that_were_asked(store):
    info, facts, rows = found(store)
    (group,) = data(make_page(store, clean(store)), "samples")
    played = group["cells"][0]["paths"]
    assert len(played) == min(len(rows), paths.MOST)
    for place in rows[: paths.MOST]:
        trace = store.trace(info.key, place)
        question, l0, prediction, index, value = played[str(int(facts.row[place]))][-1]
        assert (question, l0, prediction) == (trace.records[-1], facts.l0[place], facts.prediction[place])
        span = slice(facts.offsets[place], facts.offsets[place + 1])
        assert np.frombuffer(base64.b64decode(index), "<u4").tolist() == facts.index[span].tolist()
        assert np.frombuffer(base64.b64decode(value), "u1").tolist() == np.round(255 * facts.value[span]).tolist()
