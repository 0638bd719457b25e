"""kill -9 of workers and of the driver at points drawn by a fixed seed, twenty times in all: the same facts."""

import os
import random
import select
import subprocess
import sys

from sigmazero.store.store import Store
from tests.bench.test_engines import BRIEF, Mortal, two
from tests.children import ended
from tests.plans import NET, assert_same, contents, run

WORKER = ("unit.taken", "batch.done", "unit.done")
DRIVER = ("store.begin", "store.commit", "store.committed", "store.closing")


def test_workers_killed_ten_times(folder):
    run(BRIEF, "local.db")
    draw = random.Random(18)
    for workers, turn in ((1, 0), (2, 1), (1, 2), (2, 3)):
        points = [f"{draw.choice(WORKER)}:{draw.randint(1, 2)}" for _ in range(5)]
        engines: list[Mortal] = []

        def mortal(loader, points=points, engines=engines, workers=workers):
            engines.append(Mortal(loader, *points, workers=workers))
            return engines[0]

        path = f"workers-{turn}.db"
        run(BRIEF, path, mortal)
        # One worker comes to every point; of two, one may have nothing left to do before it comes there.
        assert engines[0].deaths == 5 if workers == 1 else engines[0].deaths <= 5
        run(BRIEF, path, two)  # a unit that met three of them has failed, and is run again
        assert_same(contents(path), contents("local.db"))


def drive(text: str, path: str) -> None:
    run(text, path, two)


def test_the_driver_killed_again_and_again(folder, children):
    """Each time the same command goes on; the workers of a dead driver end by themselves."""
    run(BRIEF, "local.db")
    draw, kills = random.Random(81), 0
    while kills < 1:  # more of them each night, tests/hard/engine_kills.py
        path = f"driver-{kills}.db"
        while children.killed(f"{draw.choice(DRIVER)}:{draw.randint(1, 4)}", drive, BRIEF, path):
            kills += 1
        assert_same(contents(path), contents("local.db"))
        with Store(path) as store:
            assert store.audit() == []
            assert store.failures() == []


# A search that never ends, and says who is at it and which process started that one.
ENDLESS = (
    NET
    + """
class Endless(Net):
    def forward(self, x):
        import os, signal
        if x.requires_grad:
            with open("workers", "w") as told:
                told.write(f"{os.getpid()} {os.getppid()}\\n")
            while True:
                signal.pause()
        return super().forward(x)

def endless(): return Endless(0)
"""
)


def test_nobody_is_left_when_the_driver_is_killed(folder):
    """Workers in the middle of a batch end with their driver, and so does the server that started them."""
    (folder / "net.py").write_text(ENDLESS)
    (folder / "brief.toml").write_text(BRIEF.replace("net.py:build", "net.py:endless"))
    os.mkfifo("workers")
    heard = os.open("workers", os.O_RDWR)  # open for writing too, so that it has no end while we wait
    command = [sys.executable, "-m", "sigmazero", "run", "brief.toml", "--trust-code", "--device", "cpu"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    driver = subprocess.Popen([*command, "--engine", "processes", "--workers", "2"], env=env)
    try:
        told: list[str] = []
        while len(told) < 2:
            assert select.select([heard], [], [], 120)[0], "no worker came to a search"
            told += os.read(heard, 4096).decode().splitlines()
    finally:
        driver.kill()
        driver.wait()
        os.close(heard)
    workers, servers = (set(map(int, numbers)) for numbers in zip(*map(str.split, told), strict=True))
    assert (len(workers), len(servers)) == (2, 1)
    for process in workers | servers:
        assert ended(process), f"process {process} of {told} lives on"
