"""Attacks of other libraries: what they need is known before they ask, and they run on the command line."""

from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import sigmazero as sz
from sigmazero import data, models
from sigmazero.cli import app

pytestmark = pytest.mark.slow


def test_an_attack_with_gradients_is_refused_at_once_where_there_are_none(peer, subject):
    peer("foolbox")
    black_box: Any = sz.limit(subject.model, ability="scores")
    with pytest.raises(ValueError, match="foolbox:L0FMNAttack needs gradients, and this model has scores"):
        sz.foreign("foolbox:L0FMNAttack", steps=3).run(black_box, subject.x[:1], subject.y[:1])
    assert black_box.queries.asked == 0  # it was not asked


@pytest.mark.parametrize(
    ("library", "part", "asking", "blind"),
    [
        ("foolbox", "attacks", "L0BrendelBethgeAttack NewtonFoolAttack EADAttack", "PointwiseAttack BoundaryAttack"),
        ("torchattacks", "", "JSMA SparseFool FAB CW", "OnePixel Pixle Square"),
        ("art", "attacks.evasion", "SaliencyMapMethod CarliniL0Method", "SquareAttack HopSkipJump PixelAttack"),
        ("adv-lib", "attacks", "fmn pdpgd vfga", ""),
    ],
)
def test_whether_an_attack_asks_for_gradients_is_told_by_its_code(peer, library, part, asking, blind):
    peer(library, part)
    assert all(sz.foreign(f"{library}:{name}").needs == "gradients" for name in asking.split())
    assert all(sz.foreign(f"{library}:{name}").needs == "labels" for name in blind.split())


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
