"""A finding of severity error is said at the end, and the exit code tells; --allow lets it pass."""

import numpy as np
import pytest

import sigmazero as sz

ROUNDS = """
import torch

class Rounds(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(60, 4, generator=torch.Generator().manual_seed(0)))

    def forward(self, x):
        return x.round().flatten(1) @ self.weight

def build(): return Rounds()
"""
PLAN = """
steps = 5

[data.mine]
source = "rounds.npz"

[[grid]]
models = ["rounds.py:build"]
data = ["mine"]
attacks = ["sigma-zero"]
"""
ATTACK = ("attack", "--model", "rounds.py:build", "--data", "rounds.npz", "--steps", 5, "--device", "cpu")
RUN = ("run", "plan.toml", "--trust-code", "--device", "cpu")


@pytest.fixture
def rounding(own):
    import runpy

    import torch

    (own / "rounds.py").write_text(ROUNDS)
    (own / "plan.toml").write_text(PLAN)
    images = np.random.default_rng(0).random((20, 3, 4, 5), dtype=np.float32)
    labels = runpy.run_path(str(own / "rounds.py"))["build"]()(torch.from_numpy(images)).argmax(1)
    np.savez(own / "rounds.npz", images=images, labels=labels.numpy())
    return own


@pytest.mark.parametrize("command", [ATTACK, RUN], ids=["attack", "run"])
def test_masked_gradients_end_with_code_3_unless_allowed(sigmazero, rounding, command):
    done = sigmazero(*command)
    assert done.exit_code == 3, done.output
    assert done.stderr.splitlines()[-1].endswith("say --allow SZ004")
    assert "error: SZ004: The gradient of the margin is exactly zero. 20 of 20 rows" in done.stderr
    assert "ASR" in done.stdout  # the figures are there
    assert sigmazero(*command, "--allow", "SZ004").exit_code == 0
    assert sigmazero(*command, "--allow", "sz003,sz004").exit_code == 0
    assert sigmazero(*command, "--allow", "SZ003").exit_code == 3
    wrong = sigmazero(*command, "--allow", "SZ999")
    assert wrong.exit_code == 2
    assert "SZ999" in wrong.stderr


def test_without_the_doctor_nothing_is_known(sigmazero, rounding):
    assert sigmazero(*ATTACK, "--no-doctor").exit_code == 0


def test_a_claim_that_does_not_hold(sigmazero, own):
    with np.load(own / "mine.npz") as mine:
        labels = np.where(np.arange(12) % 2 == 0, mine["labels"], (mine["labels"] + 1) % 4)
        np.savez(own / "mine.npz", images=mine["images"], labels=labels)
    mine = ("attack", "--model", "net.py:build", "--data", "mine.npz", "--steps", 2, "--device", "cpu")
    assert sigmazero(*mine).exit_code == 0
    done = sigmazero(*mine, "--claimed", 99)
    assert done.exit_code == 3, done.output
    assert "6 of 12 rows (50.0%) are right; 99 % is claimed" in done.stderr
    assert sigmazero(*mine, "--claimed", 199).exit_code == 2
    assert sigmazero("doctor", "net.py:build", "mine.npz", "--claimed", 99).exit_code == 1


def test_the_file_of_an_attack_carries_what_was_found(sigmazero, rounding):
    assert sigmazero(*ATTACK, "--out", "res.npz", "--allow", "SZ004").exit_code == 0
    assert [each.code for each in sz.load_result(rounding / "res.npz").findings] == ["SZ004"]
