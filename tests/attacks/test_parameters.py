"""Every parameter of every attack keeps to the type declared beside it, and other libraries' names say ours."""

import math
import re
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal

import numpy as np
import pytest

import sigmazero as sz
from sigmazero.attacks.fmn import FMN
from sigmazero.attacks.vfga import VFGA
from sigmazero.core.parameters import Range, alternatives, types

FIELDS = [(name, field) for name in sorted(sz.ATTACKS) for field in types(type(sz.ATTACKS[name]))]


def kinds(name: str, field: str) -> dict[Any, tuple[Any, ...]]:
    """The kinds of values a parameter may have, with their limits."""
    return dict(alternatives(types(type(sz.ATTACKS[name]))[field]))


def ends(kind: type, limit: Range) -> tuple[list[Any], list[Any]]:
    """The outermost numbers inside a range, and the nearest ones outside."""

    def after(number: float, way: int) -> Any:
        return number + way if kind is int else math.nextafter(number, way * math.inf)

    closed = [(end, way) for end, way in ((limit.least, -1), (limit.most, 1)) if end is not None]
    open_ = [(end, way) for end, way in ((limit.above, 1), (limit.below, -1)) if end is not None]
    inside = [end for end, _ in closed] + [after(end, way) for end, way in open_]
    return inside, [after(end, way) for end, way in closed] + [end for end, _ in open_]


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_every_number_has_a_range_and_its_ends_are_allowed(name, field):
    for kind, limits in kinds(name, field).items():
        if kind in (int, float):
            (limit,) = limits
            inside, outside = ends(kind, limit)
            for value in inside:
                assert getattr(sz.get(name, **{field: value}), field) == value
            for value in [*outside, math.inf, True, *([2.5] if kind is int else [10**400])]:
                if (field, value) != ("grad_norm", math.inf):
                    with pytest.raises(ValueError, match="^" + re.escape(f"{field}={value!r} ")):
                        sz.get(name, **{field: value})
        elif kind is NoneType:
            assert getattr(sz.get(name, **{field: None}), field) is None


def test_numbers_of_any_type_become_plain_ones():
    attack = sz.get("fmn", steps=np.int64(3), step_size=np.float32(0.5), budget_rate=0)
    assert [type(attack.parameters()[name]) for name in ("steps", "step_size", "budget_rate")] == [int, float, float]
    assert attack == FMN(steps=3, step_size=0.5, budget_rate=0.0)


@pytest.mark.parametrize(
    ("name", "wrong", "words"),
    [
        ("fmn", {"steps": 0}, "steps=0 must be a whole number, 1 or more"),
        ("bb", {"momentum": 1}, "momentum=1 must be a finite number, at least 0 and less than 1"),
        ("swap-search", {"queries": 4}, "queries=4 must be a whole number, 5 or more, or None"),
        ("sigma-zero", {"order": "other"}, "order='other' is not one of 'released', 'paper'"),
        ("sigma-zero", {"normalize": 1}, "normalize=1 must be True or False"),
        ("pgd-l0", {"loss": "focal"}, "loss='focal' is not one of 'margin', 'hinge', 'cross-entropy', 'probability'"),
        ("pgd-l0-min", {"attack": sz.get("fmn")}, "attack='fmn' must be an attack that searches within a fixed budget"),
        ("sigma-swap", {"first": sz.get("fmn")}, "first='fmn' must be sigma-zero or a variant of it"),
        ("sigma-swap", {"first_hard": sz.get("sigma-zero", loss="margin")}, "first_hard has loss='margin'"),
    ],
)
def test_in_these_words(name, wrong, words):
    with pytest.raises(ValueError, match="^" + re.escape(words)):
        sz.get(name, **wrong)


def test_an_attack_of_ones_own_is_checked_by_its_types():
    @dataclass(frozen=True, kw_only=True)
    class Own(VFGA):
        steps: int = 5  # a count, without being told
        level: Literal[1, 2] = 1
        weights: tuple[float, ...] = (1.0, 2.0)
        note: Any = None

    assert Own(level=2, weights=(), note="free").note == "free"
    for wrong, words in (
        ({"steps": 0}, "steps=0 must be a whole number, 1 or more"),
        ({"level": 3}, "level=3 is not one of 1, 2"),
        ({"weights": 1.0}, "weights=1.0 must be of the kind tuple"),
    ):
        with pytest.raises(ValueError, match=words):
            Own(**wrong)


ALIASED = [(name, other) for name in sorted(sz.ATTACKS) for other in sz.ATTACKS[name].aliases]


@pytest.mark.parametrize(("name", "other"), ALIASED)
def test_the_name_of_another_library_is_refused_with_ours(name, other):
    attack = sz.ATTACKS[name]
    assert other not in attack.parameters()
    assert attack.aliases[other] in attack.parameters()
    with pytest.raises(TypeError, match=f"'{other}'.*'{attack.aliases[other]}'"):
        sz.get(name, **{other: 0.5})
