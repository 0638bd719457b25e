"""docs/adding-an-attack.md, followed to the letter: a file and a line for an attack, a function for a loss."""

import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import sigmazero as sz
from sigmazero.core import losses
from tests.helpers.networks import TinyNet

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adding-an-attack.md").read_text(encoding="utf-8")
ATTACK, LINE, LOSS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The attack of the page in a file of its own, and registered."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "greedy.py").write_text(ATTACK)
    before = dict(sz.ATTACKS)
    exec(LINE, {})
    yield importlib.import_module("greedy")
    sys.modules.pop("greedy")
    sz.ATTACKS.clear()
    sz.ATTACKS.update(before)


def test_the_attack_is_there_and_works(module):
    def above_two(x):
        """Class 0 while the values add up to more than 2: with eight of 0.9, six must go to 0."""
        score = x.sum(1) - 2
        return torch.stack([score, -score], 1)

    x, y = torch.full((3, 8), 0.9), torch.zeros(3, dtype=torch.int64)
    assert sz.get("greedy").run(above_two, x, y).l0.tolist() == [6, 6, 6]
    assert sz.get("greedy", reach=0.9).run(above_two, x, y).l0.tolist() == [7, 7, 7]
    assert doctest.testmod(module).failed == 0
    assert doctest.testmod(module).attempted > 0
    with pytest.raises(ValueError, match="an attack called 'greedy' already"):
        sz.register(module.Greedy())


@pytest.mark.slow
def test_the_checks_by_registration_cover_it(module, tmp_path):
    (tmp_path / "added.py").write_text(LINE)
    contract = ["tests/contract/test_attacks.py", "tests/contract/test_spaces.py", "tests/attacks/test_parameters.py"]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    which = "greedy and not inside_a_range and not chain"  # as other attacks that go to the ends, it is not for these
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "added", "-k", which, *contract]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    text = re.search(r"`(reach=1\.5 must[^`]*)`", PAGE.replace("\n", " "))
    assert text is not None
    with pytest.raises(ValueError, match=re.escape(text.group(1))):
        sz.get("greedy", reach=1.5)


@pytest.fixture
def loss():
    exec(LOSS, {"__name__": __name__})
    yield "soft-margin"
    del losses.LOSSES["soft-margin"]


def test_the_loss_is_one_of_the_losses(loss):
    net = TinyNet("rgb")
    usual, other = (sz.get("sigma-zero", steps=30, loss=name).run(net, net.x, net.y) for name in ("hinge", loss))
    assert other.success.any()
    assert not torch.equal(usual.x_adv, other.x_adv)
