"""Every parameter of every attack keeps to the type declared beside it, and other libraries' names say ours."""

import math
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
NO_NUMBERS = ["3", math.nan, math.inf, -math.inf, True, [1], None]
WRONG: dict[Any, list[Any]] = {
    int: [*NO_NUMBERS, 3.0, 2.5],
    float: [*NO_NUMBERS, 10**400, 3j],
    bool: ["no", 1, 0.0, None],
}
ALLOWED = {"grad_norm": ("3", math.inf, 7)}  # a number as a text, as plans write it; infinity; a number beside a word
OTHERS = ["no such word", 7, math.nan, None, sz.get("fmn")]  # for words and for attacks inside attacks


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
def test_values_outside_are_named(name, field):
    allowed = kinds(name, field)
    wrong = [value for kind in allowed if kind is not NoneType for value in WRONG.get(kind, OTHERS)]
    wrong += [v for kind, limits in allowed.items() for one in limits if type(one) is Range for v in ends(kind, one)[1]]
    assert len(wrong) >= 4
    for value in wrong:
        if (value is None and NoneType in allowed) or value in ALLOWED.get(field, ()):
            continue
        with pytest.raises(ValueError, match=r"must be|is not one of") as caught:
            sz.get(name, **{field: value})
        assert str(caught.value).startswith(f"{field}={getattr(value, 'name', value)!r} ")


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_every_number_has_a_range_and_its_ends_are_allowed(name, field):
    for kind, limits in kinds(name, field).items():
        if kind in (int, float):
            (limit,) = limits
            for value in ends(kind, limit)[0]:
                assert getattr(sz.get(name, **{field: value}), field) == value
        elif kind is NoneType:
            assert getattr(sz.get(name, **{field: None}), field) is None


def test_numbers_of_any_type_become_plain_ones():
    attack = sz.get("fmn", steps=np.int64(3), step_size=np.float32(0.5), budget_rate=0)
    assert [type(attack.parameters()[name]) for name in ("steps", "step_size", "budget_rate")] == [int, float, float]
    assert attack == FMN(steps=3, step_size=0.5, budget_rate=0.0)


@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        ("fmn", {"steps": 0}, "steps=0 must be a whole number, 1 or more"),
        ("vfga", {"samples": 2.5}, "samples=2.5 must be a whole number, 1 or more"),
        ("bb", {"halvings": -1}, "halvings=-1 must be a whole number, 0 or more"),
        ("bb", {"momentum": 1}, "momentum=1 must be a finite number, at least 0 and less than 1"),
        ("fmn", {"step_size": 0.0}, "step_size=0.0 must be a finite number, greater than 0"),
        ("swap-search", {"queries": 4}, "queries=4 must be a whole number, 5 or more, or None"),
        ("sigma-zero", {"order": "other"}, "order='other' is not one of 'released', 'paper'"),
        ("sigma-zero", {"normalize": 1}, "normalize=1 must be True or False"),
        ("pgd-l0", {"loss": "focal"}, "loss='focal' is not one of 'margin', 'hinge', 'cross-entropy', 'probability'"),
        ("pgd-l0-min", {"attack": sz.get("fmn")}, "attack='fmn' must be an attack that searches within a fixed budget"),
        ("sigma-swap", {"first": sz.get("fmn")}, "first='fmn' must be sigma-zero or a variant of it"),
        ("sigma-swap", {"first": sz.get("sigma-zero", loss="margin")}, "first has loss='margin'"),
    ],
)
def test_in_these_words(name, wrong, said):
    with pytest.raises(ValueError, match=said[:5]) as caught:
        sz.get(name, **wrong)
    assert str(caught.value).startswith(said)


def test_an_attack_of_ones_own_is_checked_by_its_types():
    @dataclass(frozen=True, kw_only=True)
    class Own(VFGA):
        steps: int = 5  # a count, without being told
        level: Literal[1, 2] = 1
        weights: tuple[float, ...] = (1.0, 2.0)
        note: Any = None

    assert Own(level=2, weights=(), note="free").note == "free"
    for wrong, said in (
        ({"steps": 0}, "steps=0 must be a whole number, 1 or more"),
        ({"level": 3}, "level=3 is not one of 1, 2"),
        ({"weights": 1.0}, "weights=1.0 must be of the kind tuple"),
        ({"samples": 0}, "samples=0"),
    ):
        with pytest.raises(ValueError, match=said[:5]) as caught:
            Own(**wrong)
        assert str(caught.value).startswith(said)


ALIASED = [(name, other) for name in sorted(sz.ATTACKS) for other in sz.ATTACKS[name].aliases]


@pytest.mark.parametrize(("name", "other"), ALIASED)
def test_the_name_of_another_library_is_refused_with_ours(name, other):
    attack = sz.ATTACKS[name]
    assert other not in attack.parameters()
    assert attack.aliases[other] in attack.parameters()
    with pytest.raises(TypeError, match=f"'{other}'.*'{attack.aliases[other]}'"):
        sz.get(name, **{other: 0.5})
