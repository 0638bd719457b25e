"""How far a run is: rows, the cell, and the time left by queries."""

import threading

import pytest

from sigmazero.bench import progress
from sigmazero.bench.cells import expand
from sigmazero.bench.plan import parse_plan
from sigmazero.bench.progress import Progress, shown
from sigmazero.bench.run import execute
from sigmazero.store.store import Store
from tests.plans import PLAN, run, trusting


@pytest.fixture
def cells(folder):
    return expand(parse_plan(PLAN).questions, trusting())[0]


def test_the_time_left_goes_by_queries_of_each_model(cells):
    """σ-zero asks 62 times about a row in 30 steps, a model takes as long for every query."""
    first, second = cells[0], next(cell for cell in cells if cell.question.model != cells[0].question.model)
    fmn = next(cell for cell in cells if cell.info.attack == "fmn" and cell.question.model == first.question.model)
    counts = Progress([first, fmn, second], [24, 24, 24], workers=2)
    assert counts.time_left() is None
    counts.begin(0)
    counts.add(0, 12, 12.0)
    assert counts.seconds_per_row(0) == pytest.approx(1.0)
    assert counts.seconds_per_row(1) == pytest.approx(counts._queries[1] / counts._queries[0])
    assert counts.seconds_per_row(2) == pytest.approx(1.0), "an unknown model is taken for one that is known"
    counts.add(2, 12, 120.0)
    assert counts.seconds_per_row(2) == pytest.approx(10.0)
    assert counts.seconds_per_row(0) == pytest.approx(1.0)
    expected = (12 * 1.0 + 24 * counts._queries[1] / counts._queries[0] + 12 * 10.0) / 2
    assert counts.time_left() == pytest.approx(expected)
    counts.drop(2, 12)
    assert counts.time_left() == pytest.approx(expected - 60)
    assert counts.line().startswith("sigma-zero against net.py:build on mine: 24 of 72 rows, 0:00:")


def test_without_a_terminal_there_is_a_line_from_time_to_time(cells, monkeypatch):
    monkeypatch.setattr(progress, "LINE_EVERY", 0.01)
    said, heard = list[str](), threading.Event()

    def say(text: str) -> None:
        said.append(text)
        heard.set()

    counts = Progress(cells[:1], [24])
    counts.begin(0)
    with shown(counts, "plan", True, say):
        assert heard.wait(60)
    assert said[0] == "plan: sigma-zero against net.py:build on mine: 0 of 24 rows, unknown time left"
    with shown(counts, "plan", False, lambda text: pytest.fail(text)):
        pass


def test_others_read_in_the_store_how_far_a_run_is(folder, monkeypatch):
    monkeypatch.setattr(progress, "NOTE_EVERY", 0.0)
    seen = []
    loader = trusting()
    with Store("s.db", write=True) as store:
        cells, _ = expand(parse_plan(PLAN.replace("steps = 30", "steps = 5")).questions, loader)
        note = store.note_progress

        def look(state):
            note(state)
            seen.append(store.progress())

        store.note_progress = look
        execute(cells, store, loader)
    assert [each["rows"] for each in seen[:3]] == [0, 8, 16]
    assert seen[1]["of"] == 6 * 24
    assert seen[1]["left"] > 0
    assert seen[1]["cell"] == "sigma-zero against net.py:build on mine"
    assert seen[-1] == {}
    assert run(PLAN, "s.db")[2].rows == 6 * 24, "other steps are other cells"
