"""How far a run is: rows, the cell, and the time left by queries."""

import pytest

from sigmazero.bench.cells import expand
from sigmazero.bench.forecast import Progress, queries
from sigmazero.bench.plan_file import parse_plan
from sigmazero.bench.run import execute
from sigmazero.run import progress as shown
from sigmazero.store.store import Store
from tests.plans import PLAN, run, trusting


def test_the_time_left_goes_by_queries(folder, monkeypatch):
    """σ-zero asks 62 times about a row in 30 steps, VFGA far more often: equal rows are not equal work."""
    clock = [0.0]
    monkeypatch.setattr(shown.time, "monotonic", lambda: clock[0])
    cells, _ = expand(parse_plan(PLAN).questions, trusting())
    short, long = (next(cell for cell in cells if cell.info.attack == name) for name in ("sigma-zero", "vfga"))
    few, many = queries(short.question), queries(long.question)
    assert many > 2 * few
    counts = Progress(24, 12 * few + 12 * many)
    assert counts.pace.left() is None
    counts.begin(short)
    clock[0] = 10.0
    counts.add(12, few)
    assert counts.pace.left() == pytest.approx(10.0 * many / few)
    assert counts.words == "sigma-zero against net.py:build on mine: 12 of 24 rows"
    counts.add(12, many, failed=True)
    assert (counts.pace.left(), counts.done) == (0.0, 12)


def test_others_read_in_the_store_how_far_a_run_is(folder, monkeypatch):
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
    assert (seen[1]["of"], seen[1]["cell"]) == (6 * 24, "sigma-zero against net.py:build on mine")
    assert seen[1]["left"] > 0
    assert seen[-1] == {}
    assert run(PLAN, "s.db")[2].rows == 6 * 24, "other steps are other cells"
