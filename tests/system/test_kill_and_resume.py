"""Killed with -9 at a named point, a command run again ends as if nothing had happened.

`SIGMAZERO_FAULT=store.commit:8` kills a process when it comes to that point for the eighth time;
`SIGMAZERO_WORKER_FAULTS` is for the workers that it starts.
"""

import json
import re
import signal
from pathlib import Path

import numpy as np
import pytest

RUN = ("run", "plan.toml", "--trust-code", "--device", "cpu", "--store")
ROWS, STEPS, BATCH = 2 * 24, 5, 8  # of the plan: two attacks on 24 rows


def asked() -> int:
    """How many rows searches asked the model about since this was called last."""
    file = Path("asked")
    counts = [int(count) for count in file.read_text().split()]
    file.unlink()
    return sum(counts)


@pytest.fixture
def whole(here, facts):
    """The facts of a run that nobody disturbed, and how many rows the doctor asked about."""
    assert here(*RUN, "whole.db")[0] == 0
    doctor = asked() - STEPS * ROWS
    assert 0 <= doctor < STEPS * BATCH / 2, "too many to tell them from those of a batch"
    return facts("whole.db"), doctor


@pytest.mark.parametrize("point", ["store.commit:8", "batch.done:5"])
def test_a_killed_run_goes_on_after_the_last_stored_batch(whole, sigmazero, here, facts, point):
    wanted, doctor = whole
    code, out, err = sigmazero(*RUN, "killed.db", SIGMAZERO_FAULT=point)
    assert (code, out, err.count("\n")) == (-signal.SIGKILL, "", 1)  # the line of the doctor
    asked()
    stored = len(facts("killed.db"))
    assert 0 < stored < ROWS
    assert here(*RUN, "killed.db")[0] == 0
    assert 0 <= asked() - STEPS * (ROWS - stored) <= doctor, "a batch was lost or done twice"
    assert facts("killed.db") == wanted
    assert re.findall(r"\d+", here("verify", "killed.db", "--trust-code")[1]) == [f"{ROWS}", "0"]


def test_a_dead_worker_is_replaced_and_its_batch_done_again(whole, sigmazero, here, facts):
    wanted, doctor = whole
    workers = ("--engine", "processes", "--workers", 1)
    code, out, err = sigmazero(*RUN, "killed.db", *workers, SIGMAZERO_WORKER_FAULTS="batch.done:2")
    assert code == 0, err
    assert "worker" in err
    assert f"{ROWS} rows" in out
    assert 0 <= asked() - STEPS * (ROWS + BATCH) <= 2 * doctor, "another batch than the dead worker's was done twice"
    assert facts("killed.db") == wanted
    assert re.findall(r"\d+", here("verify", "killed.db", "--trust-code")[1]) == [f"{ROWS}", "0"]


def test_a_killed_gate_gives_the_same_record(folder, sigmazero, here):
    question = ("--eps", 2, "--cascade", "quick", "--batch-size", 8, "--fail-under", 50, "--device", "cpu")
    gate = ("auto", "net.py:counted", "mine.npz", *question)

    def record(name: str) -> str:
        read = json.loads((folder / name).read_text())
        assert read.pop("times")
        return json.dumps(read)

    assert here(*gate, "--store", "whole.db", "--json", "whole.json")[0] == 1
    count = asked()
    state = ("--store", "killed.db", "--json", "killed.json")
    assert sigmazero(*gate, *state, SIGMAZERO_FAULT="batch.done:2")[0] == -signal.SIGKILL
    asked()
    assert not (folder / "killed.json").exists()
    assert here(*gate, *state)[0] == 1
    assert asked() < count, "the first batch was done twice"
    assert record("killed.json") == record("whole.json")


def test_a_result_folder_has_whole_files_when_its_writer_is_killed(folder, sigmazero, here):
    attack = ("attack", "net.py:counted", "mine.npz", "--device", "cpu", "--steps", 5)

    def out(name: str) -> tuple[str, ...]:
        return ("-o", f"{name}/result.npz", "-o", f"{name}/result.png")

    def arrays(name: str) -> dict[str, bytes]:
        with np.load(folder / name / "result.npz", allow_pickle=False) as file:
            return {key: file[key].tobytes() for key in file.files if key not in ("about", "seconds")}

    assert here(*attack, *out("whole"))[0] == 0
    assert sigmazero(*attack, *out("killed"), SIGMAZERO_FAULT="file.replaced:1")[0] == -signal.SIGKILL
    assert [path.name for path in (folder / "killed").iterdir()] == ["result.npz"], "a file is half done"
    assert arrays("killed") == arrays("whole")
    assert here(*attack, *out("killed"))[0] == 0
    assert sorted(path.name for path in (folder / "killed").iterdir()) == ["result.npz", "result.png"]
    assert arrays("killed") == arrays("whole")
