import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import sigmazero as sz
from sigmazero import attacks
from sigmazero.store.store import Store
from tests.plans import PLAN, run

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
