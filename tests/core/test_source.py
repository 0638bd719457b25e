"""Loaded code is known by what it does; tests/bench/test_stale.py has what becomes of stored results."""

import functools
import importlib
from types import FunctionType

import pytest

from sigmazero.attacks.fmn import FMN
from sigmazero.core.source import code_hash, source_files

USUAL = "return x * SCALE + k"


def hashed(body, head="x, k=1", text="A text."):
    space = {"SCALE": 3, "TABLE": {"a": [1, [2]]}}
    exec(f"def f({head}):\n    '''{text}'''\n    {body}\n", space)
    return code_hash(space["f"])


def test_comments_and_docstrings_do_not_count_and_all_else_does():
    assert hashed(USUAL) == hashed(f"{USUAL}  # a comment") == hashed(USUAL, text="Another text.")
    for body, head in (("return x * SCALE - k", "x, k=1"), (f"{USUAL} + 1", "x, k=1"), (USUAL, "x, k=2")):
        assert hashed(body, head) != hashed(USUAL)


@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_every_value_that_is_held_counts(kind):
    def made(values):
        held = dict(enumerate(values)) if kind is dict else kind(values)
        return code_hash(lambda x: x * held[0])

    usual = made([[0.0], [1.0], [2.0]])
    assert usual == made([[0.0], [1.0], [2.0]])
    for place in range(3):
        assert usual != made([[9.0] if place == k else [float(k)] for k in range(3)])
    one, other = (code_hash(functools.partial(pow, exp=k)) for k in (1, 2))
    assert one != other


def test_code_of_others_is_not_looked_into():
    assert not source_files([FMN, importlib.import_module("torch").nn.Linear])


def test_the_order_of_a_set_in_code_does_not_count():
    """It is another one in each process."""
    code = (lambda x: x in {0, 8}).__code__
    sets = [frozenset(values) for values in ([0, 8], [8, 0])]
    assert repr(sets[0]) != repr(sets[1])
    made = [FunctionType(code.replace(co_consts=(None, each)), {}, "f") for each in sets]
    assert code_hash(made[0]) == code_hash(made[1])
