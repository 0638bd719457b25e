"""Every registered attack in every hard scenario: an attack is tested because it exists."""

from dataclasses import replace
from itertools import cycle

import pytest

import sigmazero as sz
from tests.helpers.cases import BOXES, LAYOUTS, MASKS, MODELS, VALUES, Case, make
from tests.helpers.trial import NIGHTLY, attack, claims_of, differences, fit, trial

EVERY = sorted(sz.ATTACKS)
SHAPES = ((3, 2, 2), (12,), (3, 4, 4), (1,), (4, 3))
AXES = {
    "model": MODELS,
    "layout": LAYOUTS,
    "values": VALUES,
    "box": BOXES,
    "mask": MASKS,
    "unit": ("feature", "pixel"),
    "budget": (0, 1, 10**6),
    "targeted": (True,),
    "rows": (0, 1, 20),
    "classes": (2, 1000),
    "dtype": ("float64",),
    "shape": ((1,), (3, 32, 32), (2, 1, 1, 1, 1)),
    "batch_size": (1, 2),
}
# One thing that is hard at a time, and all of them mixed.
USUAL = Case(shape=(3, 2, 2))
SINGLE = [replace(USUAL, **{axis: value}) for axis, values in AXES.items() for value in values]  # type: ignore[arg-type]
MIXED = [
    Case(model=model, layout=layout, values=values, box=box, mask=mask, shape=shape, unit=unit, budget=budget)
    for model, layout, values, box, mask, shape, unit, budget in zip(
        MODELS, *map(cycle, (LAYOUTS, VALUES, BOXES, MASKS, SHAPES, ("pixel", "feature"), (None, 3))), strict=False
    )
]
SCENARIOS = [*SINGLE, *MIXED]


def cases(name: str) -> list[Case]:
    """The scenarios for an attack: each at night; by day every ninth, the next attack having the next ones."""
    chosen = SCENARIOS if NIGHTLY else SCENARIOS[EVERY.index(name) % 9 :: 9]
    goals = sz.ATTACKS[name].goals
    return [fit(replace(each, attack=name, targeted=each.targeted and "targeted" in goals)) for each in chosen]


@pytest.mark.parametrize("name", EVERY)
def test_claims_are_true_in_every_scenario(name, judge):
    wrong = {case: said for case in cases(name) if (said := trial(case, judge))}
    assert not wrong, "\n".join(f"{case}: {said}" for case, said in wrong.items())


@pytest.mark.parametrize("name", EVERY)
def test_every_attack_finds_something(name):
    """Else nothing would be claimed, and nothing could be false."""
    case = fit(Case(attack=name, shape=(3, 2, 2), rows=9, steps=30))
    asked = make(case)
    assert (attack(case, asked, asked.model).outcome == 1).sum() > 2


@pytest.mark.parametrize("name", EVERY)
def test_in_a_box_of_another_width_the_same_is_found(name):
    """256 is a power of two: everything is that of the unit box, to the last bit."""
    case = fit(Case(attack=name, shape=(3, 2, 2), rows=6, steps=12, dtype="float64"))
    wide = replace(case, model="wide", box="wide")
    here, there = make(case), make(wide)
    assert here.x.mul(256).equal(there.x)
    assert here.y.equal(there.y)
    one, other = claims_of(attack(case, here, here.model)), claims_of(attack(wide, there, there.model))
    one["x_adv"] = one["x_adv"] * 256
    assert differences(one, other) == []


@pytest.mark.parametrize("box", ["infinite", "half open"])
@pytest.mark.parametrize("name", EVERY)
def test_a_box_without_ends_is_searched_or_refused(name, box):
    """Some moved features to infinity there, where no model has an answer, and said that nothing was found."""
    case = fit(Case(attack=name, box=box, rows=9, steps=30, dtype="float64"))
    asked = make(case)
    if sz.ATTACKS[name].finite_box:
        with pytest.raises(ValueError, match=f"{name} .* needs finite bounds"):
            attack(case, asked, asked.model)
        nothing = replace(case, rows=0)  # of which nothing is asked
        assert len(attack(nothing, make(nothing), asked.model)) == 0
        return
    found = int(attack(case, asked, asked.model).success.sum())
    assert found == 9 if box == "infinite" else found > 6
