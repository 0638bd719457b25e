"""No command writes over what it reads, nor over what is not its own."""

import os
from pathlib import Path

import numpy as np
import pytest

from sigmazero.store.store import Store

pytestmark = pytest.mark.slow

MINE = ("--model", "net.py:build", "--data", "mine.npz", "--device", "cpu", "--no-doctor")
DEMO = ("demo", "--limit", 4, "--steps", 5, "--device", "cpu", "--out", "runs")


def _as(how, name):
    """Another name for a file."""
    other = Path(f"other-{how}.npz")
    {"itself": lambda: None, "link": lambda: other.symlink_to(name), "hard": lambda: other.hardlink_to(name)}[how]()
    return name if how == "itself" else other


@pytest.mark.parametrize("how", ["itself", "link", "hard"])
@pytest.mark.parametrize("command", ["attack", "auto"])
def test_out_is_not_what_another_option_names(sigmazero, own, command, how):
    before = (own / "mine.npz").read_bytes()
    done = sigmazero(command, *MINE, "--out", _as(how, "mine.npz"))
    assert done.exit_code == 2
    assert "would write over what --data names, mine.npz" in done.stderr
    assert (own / "mine.npz").read_bytes() == before


@pytest.mark.parametrize("option", ["--weights", "--targets"])
def test_nor_weights_nor_targets(sigmazero, own, option):
    np.savez("goals.npz", targets=np.zeros(12))
    done = sigmazero("attack", *MINE, option, "goals.npz", "--out", "goals.npz")
    assert done.exit_code == 2
    assert f"would write over what {option} names" in done.stderr


def test_nor_a_state_that_is_not_there_yet(sigmazero, own):
    done = sigmazero("auto", *MINE, "--version", "quick", "--store", "s.npz", "--out", "./s.npz")
    assert done.exit_code == 2
    assert "would write over what --store names, s.npz" in done.stderr
    assert not (own / "s.npz").exists()


def test_nor_a_file_that_is_no_result(sigmazero, own):
    """Data may also be found in a folder, by the name of its data set."""
    np.savez("other.npz", images=np.zeros(3))
    (own / "text.npz").write_text("mine")
    for name in ("other.npz", "text.npz"):
        before = (own / name).read_bytes()
        done = sigmazero("attack", *MINE, "--steps", 2, "--out", name)
        assert done.exit_code == 2
        assert f"would write over {name}, which is no result" in done.stderr
        assert (own / name).read_bytes() == before
    (own / "new.npz").touch()  # as mktemp makes it
    for _ in range(2):  # and over its own result
        assert sigmazero("attack", *MINE, "--steps", 2, "--out", "new.npz").exit_code == 0


@pytest.mark.parametrize("name", ["pipe.npz", "link.npz"])
def test_nor_a_pipe(sigmazero, own, name):
    os.mkfifo("pipe.npz")
    (own / "link.npz").symlink_to("pipe.npz")
    done = sigmazero("attack", *MINE, "--out", name)
    assert done.exit_code == 2
    assert f"{name} is a device, a pipe or a socket" in done.stderr
    assert (own / "pipe.npz").is_fifo()
    assert (own / "link.npz").is_symlink()


def test_a_demo_removes_the_store_of_a_demo_alone(sigmazero, folder):
    (folder / "plan.toml").rename("demo.toml")
    run = ("run", "demo.toml", "--trust-code", "--device", "cpu", "--limit", 2, "--store", "runs/demo.db")
    assert sigmazero(*run).exit_code == 0
    before = (folder / "runs/demo.db").read_bytes()
    done = sigmazero(*DEMO)
    assert done.exit_code == 2
    assert "runs/demo.db is the store of another run" in done.stderr
    assert (folder / "runs/demo.db").read_bytes() == before
    (folder / "runs/demo.db").unlink()
    for seed in (0, 1):
        done = sigmazero(*DEMO, "--seed", seed)
        assert done.exit_code == 0, done.output
        with Store("runs/demo.db") as store:
            assert {info.seed for info in store.cells()} == {seed}


def _hold(path, pipe):
    with Store(path, write=True):
        pipe.send("open")
        pipe.recv()


def test_a_second_demo_leaves_the_store_of_the_first(sigmazero, own, children):
    assert sigmazero(*DEMO).exit_code == 0
    first = os.stat("runs/demo.db").st_ino
    process, pipe = children.start(_hold, own / "runs/demo.db")
    assert pipe.recv() == "open"
    done = sigmazero(*DEMO)
    pipe.send("go")
    process.join()
    assert done.exit_code == 2
    assert "is being written by process" in done.stderr
    assert os.stat("runs/demo.db").st_ino == first
