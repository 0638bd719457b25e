"""Attacks of other libraries on the command line."""

import pytest
import torch
from typer.testing import CliRunner

import sigmazero as sz
from sigmazero import data, models
from sigmazero.cli import app

pytestmark = pytest.mark.slow


def test_on_the_command_line(peer, subject, tmp_path):
    peer("foolbox")
    out = tmp_path / "res.npz"
    asked = ["attack", "demo", "mnist-5k-heldout", "--limit", "2", "--out", str(out)]
    asked += ["--attack", "foolbox:L0FMNAttack", "--steps", "20", "--set", "gamma=0.1"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert "foolbox:L0FMNAttack" in done.stdout
    rows = data.load("mnist-5k-heldout", limit=2)
    attack = sz.foreign("foolbox:L0FMNAttack", steps=20, gamma=0.1)
    expected = attack.run(models.load("demo"), rows.images, rows.labels, ids=rows.ids)
    assert torch.equal(sz.load_result(out).l0, expected.l0)
    wrong = CliRunner().invoke(app, [*asked[:-1], "gama=1"])
    assert "has no option 'gama'" in wrong.stderr
