"""The same facts on every engine, whatever happens to its workers."""

import os
import signal
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import sigmazero as sz
from sigmazero.bench.cells import Loader, expand
from sigmazero.bench.drive import NoWorkers, differences
from sigmazero.bench.engines.base import Gone, Message, Ready
from sigmazero.bench.engines.choose import choose_engine
from sigmazero.bench.engines.hand import Setup, code_hash
from sigmazero.bench.engines.processes import Processes
from sigmazero.bench.plan import DataSpec, ModelSpec, Question, parse_plan
from sigmazero.bench.progress import Crew, WorkerState
from sigmazero.bench.provenance import versions
from sigmazero.bench.run import execute
from sigmazero.data import Rows
from sigmazero.store.store import Store, StoreError
from tests.cli.conftest import sigmazero  # noqa: F401
from tests.plans import NET, PLAN, assert_same, contents, run, trusting

pytestmark = pytest.mark.slow

BRIEF = PLAN.replace("steps = 30", "steps = 5").replace(', "net.py:other"', "")


class Mortal(Processes):
    """Processes whose first workers, in the order they are started, are killed at these points."""

    def __init__(self, loader: Loader, *points: str, workers: int = 2) -> None:
        super().__init__(loader, workers)
        self.points, self.deaths = list(points), 0

    def wait(self, seconds: float) -> list[tuple[int, Message]]:
        said = super().wait(seconds)
        self.deaths += sum(isinstance(message, Gone) for _, message in said)
        return said

    def setup(self, worker: int) -> Setup:
        return replace(super().setup(worker), fault=self.points.pop(0) if self.points else "")


def two(loader: Loader) -> Processes:
    return Processes(loader, workers=2)


def test_processes_give_the_facts_of_one(folder):
    run(PLAN, "local.db")
    _, _, report = run(PLAN, "two.db", two)
    assert report.rows == 6 * 24
    assert not report.failed
    assert_same(contents("two.db"), contents("local.db"))
    with Store("local.db") as one, Store("two.db") as other:
        assert other.audit() == []
        assert one.findings() == other.findings()
        for key in one.cell_keys():
            left, right = one.answers(key), other.answers(key)
            assert left is not None
            assert right is not None
            assert torch.equal(left, right)
        assert {info.precision for info in other.cells()} == {"fp32"}
        assert {info.provenance["threads"] for info in other.cells()} == {1}
        assert [each.state for each in other.status()] == ["done"] * 6
    assert run(PLAN, "two.db", two)[2].rows == 0


@pytest.mark.parametrize(
    "points", [("unit.taken:2",), ("batch.done:1", "batch.done:2"), ("unit.done:2", "unit.done:1")]
)
def test_dead_workers_are_replaced_and_their_units_done_again(folder, points):
    """One worker at a time, so that it comes to each point whatever the pace."""
    run(BRIEF, "local.db")
    engines: list[Mortal] = []

    def mortal(loader):
        engines.append(Mortal(loader, *points, workers=1))
        return engines[0]

    _, _, report = run(BRIEF, "killed.db", mortal)
    assert engines[0].deaths == len(points)
    assert not report.failed
    assert_same(contents("killed.db"), contents("local.db"))
    with Store("killed.db") as store:
        assert len(store.findings()) == 3, "the doctor was asked about every cell"


DEADLY = (
    NET
    + """
class Deadly(Net):
    def forward(self, x):
        import os, sys, pathlib
        logits = super().forward(x)
        if x.requires_grad and len(x) and abs(float(x.detach().flatten(1)[:, 0].max()) - 0.75) < 1e-6:
            if not pathlib.Path("mended").exists():
                print("the last words", file=sys.stderr, flush=True)
                os.kill(os.getpid(), 9)
        return logits

def deadly(): return Deadly(0)
"""
)


def test_a_unit_that_kills_its_worker_three_times_fails_and_the_others_run(folder):
    (folder / "net.py").write_text(DEADLY)
    with np.load("mine.npz") as held:
        images, labels = held["images"], held["labels"]
    images[:, 0, 0, 0] = 0.5
    images[9, 0, 0, 0] = 0.75  # in the second of three batches, and not among the rows that the doctor looks at
    labels = (torch.from_numpy(images).flatten(1)[:, None] * _weights()).sum(2).argmax(1).numpy()
    np.savez("mine.npz", images=images, labels=labels)
    text = BRIEF.replace("net.py:build", "net.py:deadly").replace(', "fmn", "vfga"', ', "fmn"')
    said: list[str] = []
    loader = trusting()
    with Store("s.db", write=True) as store:
        cells, _ = expand(parse_plan(text).questions, loader)
        report = execute(cells, store, loader, engine=two(loader), say=said.append)
        assert report.rows == 2 * 16
        assert [(one.start, one.stop, one.tries) for one in store.failures()] == [(8, 16, 3)] * 2
        told = {one.error for one in store.failures()}
        assert told == {"the last words\nrows 8 to 16: its worker was killed by SIGKILL, 3 times"}
        assert [one.state for one in store.status()] == ["failed"] * 2
    assert sum("are run again" in line for line in said) == 4
    assert all("rows 8 to 16: its worker was killed by SIGKILL, 3 times" in line for line in report.failed.values())
    (folder / "mended").touch()
    assert run(text, "s.db", two)[2].rows == 2 * 8
    run(text, "local.db")
    assert_same(contents("s.db"), contents("local.db"))
    with Store("s.db") as store:
        assert store.failures() == []
        assert [one.state for one in store.status()] == ["done"] * 2


def _weights() -> torch.Tensor:
    return torch.randn(4, 60, generator=torch.Generator().manual_seed(0))


def test_what_raises_fails_its_cell_alone(folder):
    text = PLAN.replace("steps = 30", "steps = 5").replace("net.py:other", "net.py:broken")
    _, _, report = run(text, "s.db", two)
    assert set(report.failed.values()) == {"no gradients here"}
    assert len(report.failed) == 3
    assert report.rows == 3 * 24
    with Store("s.db") as store:
        assert "RuntimeError: no gradients here" in store.failures()[0].error


def test_ctrl_c_stops_the_workers_and_keeps_what_is_stored(folder):
    run(BRIEF, "local.db")
    said: list[str] = []
    loader = trusting()
    with Store("s.db", write=True) as store:
        cells, _ = expand(parse_plan(BRIEF).questions, loader)
        append, engine = store.append, two(loader)

        def once(*given, **more):
            append(*given, **more)
            os.kill(os.getpid(), signal.SIGINT)
            store.append = append  # type: ignore[method-assign]

        store.append = once  # type: ignore[method-assign]
        report = execute(cells, store, loader, engine=engine, say=said.append)
    assert report.interrupted
    assert said == ["stopping the workers (Ctrl-C again: at once)"]
    assert not engine._workers
    assert 0 < report.rows <= 3 * 24
    run(BRIEF, "s.db", two)
    assert_same(contents("s.db"), contents("local.db"))


def test_the_model_that_a_worker_finds_must_be_the_one_that_was_asked_about(folder):
    loader = trusting()
    cells, _ = expand(parse_plan(BRIEF).questions, loader)
    (folder / "net.py").write_text(NET.replace(".sum(2)", ".sum(2) * 1.0"))
    with Store("s.db", write=True) as store:
        report = execute(cells, store, loader, engine=two(loader))
    assert report.rows == 0
    assert set(report.failed.values()) == {
        "the code of net.py:build is not that which this cell is about; run the plan again"
    }


def test_workers_that_do_not_start_end_the_run(folder):
    class Stillborn(Processes):
        def setup(self, worker):
            return replace(super().setup(worker), fault="no such point")

    with pytest.raises(NoWorkers, match=r"no worker can be used: its worker ended with exit code 1 .*no such point"):
        run(BRIEF, "s.db", lambda loader: Stillborn(loader, 2))


def test_a_full_disk_stops_the_run_and_its_workers(folder):
    loader = trusting()
    engine = two(loader)
    with Store("s.db", write=True) as store:
        cells, _ = expand(parse_plan(BRIEF).questions, loader)

        def full(*given, **more):
            raise StoreError("nothing more can be written (is the disk full?)")

        store.append = full  # type: ignore[method-assign]
        with pytest.raises(StoreError, match="disk full"):
            execute(cells, store, loader, engine=engine)
    assert not engine._workers
    run(BRIEF, "local.db")
    run(BRIEF, "s.db", two)
    assert_same(contents("s.db"), contents("local.db"))


def test_workers_with_other_versions_are_refused_by_name():
    ours = Ready("node 1", {**versions(), "device": "cpu"}, code_hash())
    assert differences(ours) == ""
    other = differences(replace(ours, provenance={**versions(), "torch": "1.0", "python": "3.6"}))
    assert other.startswith(f"it has torch 1.0, this run {torch.__version__}; it has python 3.6, this run 3.")
    assert "has other code" in differences(replace(ours, code="0"))


def test_a_worker_that_is_refused_is_done_without(folder, monkeypatch):
    """The first to come has another torch; its units are the other's."""
    refused: list[str] = []

    def other(ready):
        refused.append(ready.place)
        return "" if ready.place != refused[0] else "it has torch 1.0"

    monkeypatch.setattr("sigmazero.bench.drive.differences", other)
    loader = trusting()
    said: list[str] = []
    with Store("s.db", write=True) as store:
        cells, _ = expand(parse_plan(BRIEF).questions, loader)
        report = execute(cells, store, loader, engine=two(loader), say=said.append)
    assert report.rows == 3 * 24
    assert len(said) == 1
    assert "is not used: it has torch 1.0 (on " in said[0]
    monkeypatch.setattr("sigmazero.bench.drive.differences", lambda ready: "it has torch 1.0")
    with pytest.raises(NoWorkers, match=r"no worker can be used: it has torch 1\.0"):
        run(BRIEF, "t.db", two)


def test_rows_that_nobody_brought_are_handed_out_again(folder):
    """A model that answers at random: every worker makes other batches, and some rows belong to none of them."""
    (folder / "net.py").write_text(NET.replace(".sum(2)", ".sum(2) * (torch.rand(len(x), 1) - 0.5)"))
    _, _, report = run(BRIEF.replace(', "fmn", "vfga"', ""), "s.db", two)
    assert report.rows == 24
    assert not report.failed


def test_what_is_in_memory_stays_there(folder):
    loader = trusting()
    spec, rows = ModelSpec("mine", "given"), DataSpec("given", "given")
    loader.give_model(spec, torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(60, 4)))
    loader.give_rows(rows, Rows(torch.rand(4, 3, 4, 5), torch.arange(4), torch.arange(4), "given"))
    cells, _ = expand([Question(spec, rows, "fmn", sz.get("fmn", steps=2))], loader)
    with Store("s.db", write=True) as store, pytest.raises(ValueError, match=r"mine is in the memory of this process"):
        execute(cells, store, loader, engine=two(loader))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("proceses", {}, r"there is no engine 'proceses'; did you mean 'processes'"),
        ("processes", {"workers": 0}, r"0 workers make no sense; give 1 or more"),
        (
            "local",
            {"workers": 2},
            r"a number of workers \(2\) says nothing to the engine 'local'; use the engine 'processes'",
        ),
        (
            "processes",
            {"address": "auto"},
            r"an address \(auto\) says nothing to the engine 'processes'; use the engine 'ray'",
        ),
        ("ray", {"gpus_per_worker": 0.5}, r"0\.5 GPUs for each worker need a CUDA device, and this run is on cpu"),
        ("ray", {"gpus_per_worker": -1.0}, r"-1 GPUs for each worker make no sense"),
    ],
)
def test_wrong_choices_are_one_line(name, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        choose_engine(name, Loader(), **options)
    assert "\n" not in str(caught.value)


def test_the_status_tells_what_every_worker_does(folder, sigmazero, monkeypatch):  # noqa: F811
    """Looked at from outside, at the moment when the first facts were stored."""
    loader = trusting()
    said: list[Any] = []
    monkeypatch.setattr("sigmazero.bench.progress.NOTED", 0.0)
    with Store("s.db", write=True) as store:
        cells, _ = expand(parse_plan(BRIEF).questions, loader)
        note = store.note_progress

        def look(state):
            note(state)
            if state.get("rows") and not said:
                said.append((store.status(), store.progress()))

        store.note_progress = look  # type: ignore[method-assign]
        execute(cells, store, loader, engine=two(loader))
        ((cells_then, progress),) = said
        assert "running" in {one.state for one in cells_then}
        assert 0 < progress["rows"] < progress["of"] == 3 * 24
        assert progress["speed"] > 0
        assert progress["left"] >= 0
        assert [one["worker"] for one in progress["workers"]] == [0, 1]
        assert any(one["what"].endswith("against net.py:build") for one in progress["workers"])
        assert store.progress() == {}
        note(progress)
        told = sigmazero("status", "s.db").stdout
        assert f"running: {progress['rows']} of 72 rows; " in told
        assert "rows per second; time left " in told
        assert "against net.py:build" in told
    assert "rows per second" not in sigmazero("status", "s.db").stdout, "nobody writes there any more"


def test_the_board_speaks_of_each_worker_or_of_all():
    crew = Crew(100, {number: WorkerState() for number in range(3)})
    assert crew.time_left(10.0) is None
    assert crew.words().splitlines()[2] == "2 starting  (0 rows)"
    crew.workers |= {number: WorkerState("idle") for number in range(3, 20)}
    assert crew.words() == "3 starting, 17 idle"
