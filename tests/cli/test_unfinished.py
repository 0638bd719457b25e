"""Ctrl-C in `sigmazero attack --out`: finished rows are kept, and the same command goes on."""

import re
import runpy

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.slow

# Whoever touches the file `stop` presses Ctrl-C so often while the next batch is searched; `fail` is an error there.
NET = """
import os, signal
from pathlib import Path
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 60, generator=torch.Generator().manual_seed(0)))

    def forward(self, x):
        if x.requires_grad and Path("stop").exists():
            presses = int(Path("stop").read_text())
            Path("stop").unlink()
            for _ in range(presses):
                os.kill(os.getpid(), signal.SIGINT)
        if x.requires_grad and Path("fail").exists() and x.shape[0] == 2:
            raise RuntimeError("the last rows cannot be searched")
        answers = (x.flatten(1)[:, None] * self.weight).sum(2)
        return -answers if Path("other").exists() else answers

def build(): return Net()
"""
MINE = ("attack", "--model", "net.py:build", "--data", "mine.npz", "--device", "cpu", "--no-doctor", "--steps", 20)
BATCHES = ("--rows", "0:10", "--batch-size", 4)


@pytest.fixture
def net(own):
    (own / "net.py").write_text(NET)
    with np.load("mine.npz") as file:
        images = file["images"]
    weight = runpy.run_path("net.py")["build"]().weight.detach().numpy()
    labels = (images.reshape(12, 1, 60) * weight).sum(2).argmax(1)
    labels[1] = (labels[1] + 1) % 4  # wrong already
    np.savez("mine.npz", images=images, labels=labels)
    return own


def held(path):
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files if name != "about"}  # which has the seconds


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name], name)


SERVICE = """
import numpy as np
import sigmazero as sz
WEIGHT = np.random.default_rng(0).normal(size=(60, 4))

class Client:
    calls = 0

    def __call__(self, x: np.ndarray):
        self.calls += 1
        if self.calls > 40:
            raise ConnectionError("the line is dead\\nfor now")
        return x.reshape(len(x), -1) @ WEIGHT

def build(): return sz.limit(sz.wrap(Client(), kind="numpy"), max_batch=2, retries=1, wait=0.0)
"""


def test_a_service_that_fails_halfway(sigmazero, own):
    (own / "service.py").write_text(SERVICE)
    asked = (*MINE, "--model", "service.py:build", "--attack", "label-swap", "--rows", "0:8")
    with np.load("mine.npz") as file:
        images = file["images"]
    labels = (images.reshape(12, 60).astype(float) @ runpy.run_path("service.py")["WEIGHT"]).argmax(1)
    np.savez("mine.npz", images=images, labels=labels)
    alone = sigmazero(*asked)
    assert alone.exit_code == 1
    said = [line for line in alone.stderr.splitlines() if "not done" in line]
    assert len(said) == 1
    assert said[0].startswith("warning: ")
    done = 8 - int(said[0].split()[1])
    assert 0 < done < 8
    assert re.search(r"clean accuracy +100.0 %", alone.stdout)  # of the rows that are done
    for _ in range(8):
        kept = sigmazero(*asked, "--out", "kept.npz")
        if kept.exit_code == 0:
            break
        assert "rows are kept in kept.npz" in kept.stderr
        assert "error: the model failed 2 times in a row (ConnectionError: the line is dead)" in kept.stderr
    assert kept.exit_code == 0
    assert held("kept.npz")["ids"].tolist() == list(range(8))


@pytest.mark.parametrize("goal", ["", "--target-class 1", "--attack pgd-l0 --budget 4"])
def test_the_same_command_goes_on(sigmazero, net, goal):
    arguments = (*MINE, *BATCHES, *goal.split())
    assert sigmazero(*arguments, "--out", "whole.npz").exit_code == 0
    whole = held("whole.npz")
    count, done = len(whole["ids"]), 0
    while done < count:
        (net / "stop").write_text("1")
        stopped = sigmazero(*arguments, "--out", "kept.npz")
        kept = held("kept.npz")
        if stopped.exit_code == 0:  # it was pressed in the last batch
            break
        assert stopped.exit_code == 130
        assert done < len(kept["ids"]) < count
        done = len(kept["ids"])
        assert "stopping within" in stopped.stderr
        assert f"{done} of {count} rows are kept in kept.npz. To go on: sigmazero" in stopped.stderr
        assert stopped.stdout == ""
        places = kept["places"]
        part = {name: values[places] if values.ndim else values for name, values in whole.items()}
        assert_same({name: kept[name] for name in whole}, part)
    else:
        pytest.fail("it never came to its end")
    assert done
    assert f"going on: {done} of {count} rows are in kept.npz already" in stopped.stderr
    assert_same(kept, whole)


def test_the_same_command_goes_on_whatever_default_device_the_model_sets(sigmazero, net):
    """On "meta" no tensor has values: what is made there by oversight cannot be written or compared."""
    text = NET.replace("manual_seed(0)", 'manual_seed(0), device="cpu"')
    (net / "net.py").write_text(text.replace("class Net", 'torch.set_default_device("meta")\n\nclass Net'))
    (net / "stop").write_text("1")
    try:
        stopped, done = (sigmazero(*MINE, *BATCHES, "--out", "kept.npz") for _ in range(2))
        assert torch.get_default_device().type == "meta"
    finally:
        torch.set_default_device(None)
    assert (stopped.exit_code, done.exit_code) == (130, 0), stopped.output + done.output
    assert len(held("kept.npz")["ids"]) == 10


def test_a_second_ctrl_c_ends_at_once_and_keeps_the_batches_before(sigmazero, net):
    (net / "stop").write_text("1")
    assert sigmazero(*MINE, *BATCHES, "--out", "kept.npz").exit_code == 130
    before = held("kept.npz")
    (net / "stop").write_text("2")
    done = sigmazero(*MINE, *BATCHES, "--out", "kept.npz")
    assert done.exit_code == 130
    assert_same(held("kept.npz"), before)
    (net / "stop").write_text("2")
    done = sigmazero(*MINE, *BATCHES, "--out", "none.npz")
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (130, "interrupted")
    assert not (net / "none.npz").exists()


def test_an_error_in_a_later_batch_keeps_the_batches_before(sigmazero, net):
    (net / "fail").touch()
    done = sigmazero(*MINE, "--rows", "0,2:11", "--batch-size", 4, "--out", "kept.npz")
    assert done.exit_code == 2
    assert "8 of 10 rows are kept" in done.stderr
    assert "the last rows cannot be searched" in done.stderr
    (net / "fail").unlink()
    assert sigmazero(*MINE, "--rows", "0,2:11", "--batch-size", 4, "--out", "kept.npz").exit_code == 0
    assert len(held("kept.npz")["ids"]) == 10


@pytest.mark.parametrize("change", [("--steps", 21), ("--seed", 1), ("--rows", "1:11"), ("--unit", "pixel"), "net.py"])
def test_what_another_run_left_is_neither_taken_nor_lost(sigmazero, net, change):
    (net / "stop").write_text("1")
    assert sigmazero(*MINE, *BATCHES, "--out", "kept.npz").exit_code == 130
    before = (net / "kept.npz").read_bytes()
    if change == "net.py":
        (net / "net.py").write_text(f"{NET}\n# another one\n")
    done = sigmazero(*MINE, *BATCHES, "--out", "kept.npz", *(() if change == "net.py" else change))
    assert done.exit_code == 2
    assert "kept.npz is the unfinished result of another run" in done.stderr
    assert (net / "kept.npz").read_bytes() == before


def test_what_the_model_no_longer_says_is_not_taken(sigmazero, net):
    (net / "stop").write_text("1")
    assert sigmazero(*MINE, *BATCHES, "--out", "kept.npz").exit_code == 130
    (net / "other").touch()  # neither weights nor code tell
    done = sigmazero(*MINE, *BATCHES, "--out", "kept.npz")
    assert done.exit_code == 2
    assert "kept.npz: row 4: the model is not fooled by the stored example" in done.stderr


def test_auto_says_where_it_keeps_what_is_finished(sigmazero, net):
    arguments = ("auto", *MINE[1:8], "--version", "quick", "--limit", 2, "--allow", "SZ014")
    (net / "stop").write_text("1")
    done = sigmazero(*arguments, "--store", "kept.state")
    assert done.exit_code == 130
    assert "stopped; what is finished: in kept.state. To go on: sigmazero" in done.stderr
    assert sigmazero(*arguments, "--store", "kept.state").exit_code == 0
    (net / "stop").write_text("1")
    assert "--store FILE would have kept it" in sigmazero(*arguments).stderr
