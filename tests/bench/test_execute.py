"""Runs of plans: cells that fail or are missing, how far a run is, and what the command line says of it."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

import sigmazero as sz
from sigmazero import attacks
from sigmazero.bench.cells import expand
from sigmazero.bench.forecast import Progress, queries
from sigmazero.bench.plan_file import parse_plan
from sigmazero.bench.run import execute
from sigmazero.run import progress as shown
from sigmazero.store.store import Store
from tests.cli.conftest import sigmazero  # noqa: F401
from tests.plans import PLAN, run, trusting

BRIEF = PLAN.replace("steps = 30", "steps = 5").replace(', "net.py:other"', "")


@dataclass(frozen=True, kw_only=True)
class Failing(type(sz.get("sigma-zero"))):  # type: ignore[misc]
    name: str = "failing"
    version: ClassVar[int] = 7

    def step(self, i, s, oracle):
        if (oracle.problem.ids >= 16).any() and not Path("mended").exists():
            raise RuntimeError("row 16 is too much")
        return super().step(i, s, oracle)


def test_an_attack_that_raises_is_a_failed_cell_and_the_others_run(folder, monkeypatch):
    monkeypatch.setitem(attacks.ATTACKS, "failing", Failing())
    text = PLAN.replace('"fmn"', '"failing"').replace(', "net.py:other"', "")
    _, _, report = run(text, "s.db")
    (line,) = report.failed.values()
    assert re.fullmatch(r"RuntimeError: row 16 is too much \(.*, line \d+\)", line)
    with Store("s.db") as store:
        states = {(one.cell.attack, one.state, one.done) for one in store.status()}
        (error,) = [one.error for one in store.status() if one.error]
        facts = store.facts(next(iter(report.failed)))
    # The batches before it are facts; the one that raised is not there at all.
    assert states == {("sigma-zero", "done", 24), ("failing", "failed", 16), ("vfga", "done", 24)}
    assert "RuntimeError: row 16 is too much" in error
    assert facts.row.tolist() == list(range(16))
    # Once the cause is gone the same command completes the cell.
    Path("mended").touch()
    assert run(text, "s.db")[2].rows == 8
    with Store("s.db") as store:
        assert {one.state for one in store.status()} == {"done"}


def test_absent_weights_data_and_files_are_missing_and_the_rest_runs(folder, monkeypatch):
    monkeypatch.setenv("SIGMAZERO_HOME", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    text = PLAN.replace('"net.py:other"', '"M1", "none.py:build"').replace('["mine"]', '["mine", "absent.npz"]')
    _, missing, report = run(text, "s.db")
    assert report.rows == 3 * 24
    found = {one.what: (one.questions, str(one.error)) for one in missing}
    assert found["M1"][0] == found["none.py:build"][0] == 3
    assert found["absent.npz"][0] == 9
    assert 'sigmazero.models.fetch("M1")' in found["M1"][1]


def test_missing_and_failed_cells_end_with_1(sigmazero, folder, monkeypatch):  # noqa: F811
    monkeypatch.setenv("SIGMAZERO_HOME", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    text = (folder / "plan.toml").read_text().replace('"net.py:other"', '"net.py:broken", "M1"')
    (folder / "plan.toml").write_text(text)
    done = sigmazero("run", "plan.toml", "--trust-code")
    assert done.exit_code == 1, done.output
    assert "72 rows stored" in done.stdout
    assert "missing: M1 (3 cells)" in done.stderr
    assert "sigmazero fetch M1" in done.stderr
    assert "not complete: 3 cells failed, 3 are missing" in done.stderr
    shown = sigmazero("status", "runs/plan.db")
    assert "3 failed, 3 done" in shown.stdout.replace("3 done, 3 failed", "3 failed, 3 done")
    assert "RuntimeError: no gradients here" in done.stderr
    assert "no gradients here" in shown.stderr


def test_an_engine_that_cannot_be_had_leaves_no_store(sigmazero, folder, monkeypatch):  # noqa: F811
    monkeypatch.setitem(sys.modules, "ray", None)
    for name, words in (("magic", "'magic' is not one of"), ("ray", "pip install 'sigmazero[ray]'")):
        done = sigmazero("run", "plan.toml", "--trust-code", "--engine", name)
        assert done.exit_code == 2
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert not (folder / "runs").exists()


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
