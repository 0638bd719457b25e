"""The hash of code: another one for other code, the same for other words about it."""

import importlib
import sys
from typing import Any

import pytest

from sigmazero.attacks.fmn import FMN
from sigmazero.core.source import code_hash

CODE = '''
"""A module."""
import torch
import helping
from helping import shift

SCALE = 3

class Base(torch.nn.Module):
    def twice(self, x):
        return 2 * x

class Net(Base):
    """A network."""

    def forward(self, x):
        # a comment
        return helping.power(self.twice(x)) * SCALE + shift(x)

def plain(x):
    return x.flatten(1)

one, two = lambda x: x, lambda x: x + 1
alone = lambda x: x - 1

def scaled(by):
    def inner(x):
        return by * x
    return inner
'''
HELPING = """
def power(x):
    return x ** 2

def shift(x):
    return x + 1
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Loads the module above, with some words replaced."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(old="", new=""):
        (tmp_path / "hashed.py").write_text(CODE.replace(old, new))
        (tmp_path / "helping.py").write_text(HELPING.replace(old, new))
        for name in ("hashed", "helping"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module("hashed")

    yield load
    for name in ("hashed", "helping"):
        sys.modules.pop(name, None)


def hashes(module):
    return code_hash(module.plain), code_hash(module.Net)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x.flatten(1)", "x.flatten(2)"),
        ("2 * x", "3 * x"),
        ("SCALE = 3", "SCALE = 4"),
        ("x ** 2", "x ** 3"),
        ("x + 1\n", "x + 2\n"),
        ("+ shift", "- shift"),
    ],
)
def test_other_code_has_another_hash(module, old, new):
    before, after = (hashes(module(*change)) for change in ((), (old, new)))
    assert None not in before
    changed = [one != other for one, other in zip(before, after, strict=True)]
    assert changed == ([True, False] if "flatten" in old else [False, True])


def test_a_file_edited_since_it_was_loaded_is_no_source(module):
    loaded = module()
    assert None not in hashes(loaded)
    module("2 * x", "3 * x")  # what was loaded before still doubles
    assert code_hash(loaded.Net) is None
    module("x.flatten(1)", "x.flatten(2)")
    assert code_hash(loaded.plain) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# a comment", "# another"),
        ('"""A network."""', '"""A larger\n    network."""'),
        ("import torch\n", "import torch\n\n\n"),
        ("(x)) * SCALE", "(x) ) *  SCALE"),
        ("flatten(1)", "flatten(2)"),
    ],
)
def test_other_words_have_the_same(module, old, new):
    before = code_hash(module().Net)
    assert before == code_hash(module(old, new).Net) is not None


def test_the_name_counts(module):
    before = code_hash(module().Net)
    assert before != code_hash(module("Net", "Network").Network)


def test_values_of_a_closure_count(module):
    m = module()
    assert code_hash(m.scaled(2)) == code_hash(m.scaled(2)) != code_hash(m.scaled(3))


def test_code_that_cannot_be_told_has_no_hash(module):
    m = module()
    assert code_hash(m.one) is None  # two in a line
    assert code_hash(m.alone) is not None
    space: dict[str, Any] = {"__name__": "nowhere"}
    exec("class Made: pass", space)
    assert code_hash(space["Made"]) is None


def test_a_class_of_ours_covers_its_own_code_and_not_the_contract():
    class Mine(FMN):
        pass

    class Other(FMN):
        pass

    assert None not in (code_hash(FMN), code_hash(Mine))
    assert len({code_hash(FMN), code_hash(Mine), code_hash(Other)}) == 3
