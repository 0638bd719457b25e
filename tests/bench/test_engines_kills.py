"""Workers do not outlive their driver."""

import os
import select
import subprocess
import sys

import pytest

from tests.bench.test_engines import BRIEF
from tests.children import ended
from tests.plans import NET

pytestmark = pytest.mark.slow

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
