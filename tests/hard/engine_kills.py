"""kill -9 of workers, of nodes of a Ray cluster and of the driver, at points and moments drawn by a seed.

The facts are those of an undisturbed run, and a row that was stored before the driver died is not run again.

The driver is always the command line in a process of its own, and nodes are those that `ray start` makes.
"""

import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sigmazero.core import faults
from sigmazero.store.store import Store
from tests import plans
from tests.plans import NET, PLAN, assert_same, contents

# Ray's workers yield to everybody else, by default: where others are busy they would not begin within its patience.
EAGER = {"RAY_worker_niceness": "0"}
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
BRIEF = PLAN.replace("steps = 30", "steps = 5").replace(', "net.py:other"', "")
WORKER = ("unit.taken", "batch.done", "unit.done")
# How often the driver comes to a point at least, however fast it and its workers are.
DRIVER = {
    "unit.sent": 6,
    "unit.heard": 8,
    "store.closing": 1,
    "store.begin": 5,
    "store.commit": 5,
    "store.committed": 5,
}
HERE = {"unit.taken": 9, "batch.done": 9, "unit.done": 9}  # what the driver does itself without other workers
ROWS = 3 * 24
VICTIMS = (
    *(("worker", "ray"), ("node", "ray"), ("driver", "ray"), ("moment", "ray")),
    *(
        ("worker", "processes"),
        ("driver", "processes"),
        ("moment", "processes"),
        ("driver", "local"),
        ("moment", "local"),
    ),
)


def sigmazero(*arguments: Any, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line, in a process of its own."""
    return python("-m", "sigmazero", *map(str, arguments), cwd=cwd, **environment)


def python(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python with our modules, in a process of its own."""
    command = [sys.executable, *arguments]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    env |= EAGER | environment
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=600)


class Node:
    """A node of a cluster, as `ray start` makes it; it ends with the process."""

    def __init__(self, folder: Path, *options: str) -> None:
        folder.mkdir()
        env = {**os.environ, **EAGER, **TOKEN, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *options]
        self.process = subprocess.Popen(
            [*command, "--object-store-memory=100000000", "--disable-usage-stats"],
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if "Ray runtime started" in line:
                return
        raise AssertionError(f"the node did not start: {''.join(said)}")

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Cluster:
    """A head without workers, and two nodes with room for one each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.nodes, self.made = folder, list[Node](), 0
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        self.head = Node(folder / "head", "--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false")
        self.fill()

    def fill(self) -> None:
        """Add nodes until there are two."""
        while len(self.nodes) < 2:
            self.made += 1
            self.nodes.append(Node(self.folder / f"{self.made}", f"--address={self.address}", "--num-cpus=1"))

    def remove_dead(self) -> None:
        """Wait for the node that was killed: its `ray start` notices, and ends."""
        watched = {os.pidfd_open(node.process.pid): node for node in self.nodes}
        (ended, *_), _, _ = select.select(list(watched), [], [], 120)
        self.nodes.remove(watched[ended])
        watched[ended].end()
        for one in watched:
            os.close(one)

    def end(self) -> None:
        for node in (*self.nodes, self.head):
            node.end()


@contextmanager
def started(folder: Path) -> Iterator[Cluster]:
    """A cluster that ends with the block."""
    folder.mkdir()
    cluster = Cluster(folder)
    try:
        yield cluster
    finally:
        cluster.end()


def prepare(folder: Path) -> dict[str, Any]:
    """A network, rows and a plan; and the facts of it, made in one process that nobody kills."""
    (folder / "net.py").write_text(NET)
    (folder / "brief.toml").write_text(BRIEF)
    images = torch.rand(24, 3, 4, 5, generator=torch.Generator().manual_seed(1))
    weight = torch.randn(4, 60, generator=torch.Generator().manual_seed(0))
    labels = (images.flatten(1)[:, None] * weight).sum(2).argmax(1)
    np.savez(folder / "mine.npz", images=images.numpy(), labels=labels.numpy())
    torch.set_num_threads(1)  # as workers have it
    with chdir(folder):
        plans.run(BRIEF, "local.db")
    return contents(folder / "local.db")


def command(store: str, *options: Any) -> tuple[str, ...]:
    """The arguments that run the plan."""
    return ("run", "brief.toml", "--store", store, "--trust-code", "--device", "cpu", *map(str, options))


def run(folder: Path, store: str, *options: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the plan. Only a driver that is armed may end otherwise than well."""
    done = sigmazero(*command(store, *options), cwd=folder, **TOKEN, **environment)
    allowed = {0, -signal.SIGKILL} if faults.VARIABLE in environment else {0}
    assert done.returncode in allowed, f"{environment}: it ended with {done.returncode}: {done.stderr}"
    return done


def kill_after(seconds: float, folder: Path, store: str, *options: Any) -> None:
    """Start the run, and kill its driver after so many seconds, or let it end."""
    env = {
        **os.environ,
        **EAGER,
        **TOKEN,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "OMP_NUM_THREADS": "1",
    }
    arguments = [sys.executable, "-m", "sigmazero", *command(store, *options)]
    with subprocess.Popen(
        arguments, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as driver:
        with suppress(subprocess.TimeoutExpired):
            driver.wait(seconds)
        driver.kill()


@cache
def undisturbed(folder: Path, engine: str, options: tuple[Any, ...]) -> float:
    """The seconds that a run takes which nobody kills."""
    began = time.monotonic()
    run(folder, f"whole-{engine}.db", *options)
    return time.monotonic() - began


def points_of(victim: str, engine: str) -> dict[str, int]:
    """The points at which a victim can be killed, and how often it comes to each at least."""
    if victim != "driver":
        return dict.fromkeys(WORKER, 2) | ({"worker.begun": 1} if victim == "worker" else {})
    return DRIVER | (HERE if engine == "local" else {"worker.replaced": 1})


def armed(victim: str, point: str, count: int) -> tuple[int, dict[str, str]]:
    """How many workers to start, and what to arm so that the victim dies whatever the pace."""
    if victim == "node":  # one worker at a time: it comes to the point, and the other node is left for the next
        return 1, {faults.WORKERS: f"{point}:{count}:parent"}
    if victim == "worker":  # one of the two comes to the point, perhaps both
        return 2, {faults.WORKERS: f"{point}:{count},{point}:{count}"}
    dead = {faults.WORKERS: "unit.taken,unit.taken"} if point == "worker.replaced" else {}
    return 2, {faults.VARIABLE: f"{point}:{count}", **dead}


def trial(
    draw: random.Random,
    folder: Path,
    wanted: dict[str, Any],
    kind: tuple[str, str],
    cluster: Cluster,
) -> str:
    """Have one victim killed, let the run go on, and compare its facts; what was killed, and what was stored then."""
    victim, engine = kind
    store, kills, found = f"{draw.getrandbits(32):08x}.db", 0, ""
    workers, environment = 2, dict[str, str]()
    if victim != "moment":
        name = draw.choice(sorted(points_of(victim, engine)))
        workers, environment = armed(victim, name, draw.randint(1, points_of(victim, engine)[name]))
    options: list[Any] = [] if engine == "local" else ["--engine", engine, "--workers", workers]
    options += ["--address", cluster.address] if engine == "ray" else []
    if victim == "moment":
        seconds = draw.uniform(0.2, 1) * undisturbed(folder, engine, tuple(options))
        environment, kills = {"seconds": f"{seconds:.1f}"}, 1
        kill_after(seconds, folder, store, *options)
    else:
        done = run(folder, store, *options, **environment)
        kills = len(re.findall(r"they are run again|another one is started", done.stderr)) + bool(done.returncode)
        assert kills, f"{environment}: nobody died: {done.stderr}"
    if victim in ("driver", "moment"):
        before = sum(len(each["row"]) for each in contents(folder / store).values()) if (folder / store).exists() else 0
        rest = int(re.findall(r"(\d+) rows stored", run(folder, store, *options).stdout)[-1])
        assert before + rest == ROWS, f"{environment}: {before} rows were stored, and {rest} of {ROWS} were run again"
        found = f"; {before} rows were stored, {rest} followed"
    if victim == "node":
        cluster.remove_dead()
        cluster.fill()
    assert_same(contents(folder / store), wanted)
    with Store(folder / store) as stored:
        assert stored.damage() == []
        assert stored.failures() == []
    return f"{kills} killed: {victim} of {engine}, {environment}{found}"


def soak(kills: int, seed: int, folder: Path) -> Counter[str]:
    """`kills` trials, of every victim in turn; how many there were of each."""
    draw, wanted, found = random.Random(seed), prepare(folder), Counter[str]()
    with started(folder / "nodes") as cluster:
        for kind in islice(cycle(VICTIMS), kills):
            print(trial(draw, folder, wanted, kind, cluster), flush=True)
            found[" of ".join(kind)] += 1
    return found
