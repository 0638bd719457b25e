"""Code by its content: files with their local imports, and what is loaded."""

import functools
import importlib
import sys

import pytest

from sigmazero.attacks.fmn import FMN
from sigmazero.core.source import code_hash, hash_sources, source_files

FILES = {
    "first.py": """
import json, torch
import second
from third import power

SCALE = 3
TABLE = {"a": [1, 2]}

class Net(torch.nn.Module):
    '''A network.'''

    def forward(self, x):
        # a comment
        from inside import late
        return second.shift(x) * SCALE + power(x) + TABLE["a"][0]

def scaled(by):
    def inner(x):
        return by * x
    return inner
""",
    "second.py": "import package.part\ndef shift(x): return x + 1\n",
    "third.py": "def power(x): return x ** 2\n",
    "inside.py": "late = 1\n",
    "package/__init__.py": "",
    "package/part.py": "from . import other\n",
    "package/other.py": "",
    "apart.py": "",
}
OWN = ("first", "second", "third", "inside", "package", "package.part", "package.other")


@pytest.fixture
def first(tmp_path, monkeypatch):
    """Write the files, with some words replaced, and load the first one."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "package").mkdir()

    def load(old="", new=""):
        for name, text in FILES.items():
            (tmp_path / name).write_text(text.replace(old, new) if old else text)
        for name in OWN:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module("first")

    yield load
    for name in OWN:
        sys.modules.pop(name, None)


def test_files_are_those_that_are_imported_anywhere(first, tmp_path):
    net = first().Net
    found = [file.relative_to(tmp_path).as_posix() for file in source_files([net])]
    assert found == sorted(set(FILES) - {"apart.py"})
    before = hash_sources([net])
    assert hash_sources([first("late = 1", "late = 1 #").Net]) != before
    assert hash_sources([first().Net]) == before


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("# a comment", "# another\n", True),
        ("A network.", "Another docstring.", True),
        ("SCALE = 3", "SCALE = 4", False),
        ("[1, 2]", "[1, 3]", False),
        ("x + 1", "x + 2", False),
        ("x ** 2", "x ** 3", False),
    ],
)
def test_loaded_code_is_known_by_what_it_does(first, old, new, same):
    module = first()
    before = code_hash(module.Net)
    assert (code_hash(first(old, new).Net) == before) is same
    module.SCALE = 5  # what is set after loading counts
    assert code_hash(module.Net) != before


def test_closures_defaults_and_partials_count(first):
    module = first()
    assert code_hash(module.scaled(2)) == code_hash(module.scaled(2)) != code_hash(module.scaled(3))
    made = [eval(f"lambda x, k={k}: x * k") for k in (1, 2, 1)]
    assert code_hash(made[0]) == code_hash(made[2]) != code_hash(made[1])
    parts = [functools.partial(pow, exp=k) for k in (1, 2)]
    assert code_hash(parts[0]) != code_hash(parts[1])


@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_every_value_inside_a_value_counts(kind):
    def made(values):
        inside = dict(enumerate(values)) if kind is dict else kind(values)
        return code_hash(lambda x: x * inside[0])

    usual = made([[0.0], [1.0], [2.0]])
    assert usual == made([[0.0], [1.0], [2.0]])
    for place in range(3):
        assert usual != made([[9.0] if place == k else [float(k)] for k in range(3)])


def test_code_of_others_is_not_looked_into():
    assert not source_files([FMN, importlib.import_module("torch").nn.Linear])
