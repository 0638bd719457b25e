"""Every registered attack in every hard scenario: an attack is tested because it exists."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, product

import numpy as np
import pytest

import sigmazero as sz
from tests.helpers.cases import BOXES, LAYOUTS, MASKS, MODELS, VALUES, Case, make
from tests.helpers.judge import facts_of
from tests.helpers.trial import NIGHTLY, attack, claims_of, differences, fit, question, trial

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
SINGLE = [replace(USUAL, **{axis: value}) for axis, values in AXES.items() for value in values]
MIXED = [
    Case(model=model, layout=layout, values=values, box=box, mask=mask, shape=shape, unit=unit, budget=budget)
    for model, layout, values, box, mask, shape, unit, budget in zip(
        MODELS, *map(cycle, (LAYOUTS, VALUES, BOXES, MASKS, SHAPES, ("pixel", "feature"), (None, 3))), strict=False
    )
]
SCENARIOS = [*SINGLE, *MIXED]


# The plain questions a user asks, of rows of which one is wrong already and some can never be fooled: the second one's
# goal is reached, the third one's features are fixed, and where the first feature is high the margin is too large.
# By day each value of an axis meets each value of every other.
PLAIN = Case(model="guarded", mask="walls", shape=(3, 2, 2), rows=8, steps=9)
QUESTIONS = [
    replace(PLAIN, box=box, unit=unit, targeted=targeted, budget=budget)
    for box, unit, targeted, budget in (
        product(("unit", "shifted", "bytes"), ("feature", "pixel"), (False, True), (None, 2))
        if NIGHTLY
        else (
            *(("unit", "feature", False, None), ("unit", "pixel", True, 2)),
            *(("shifted", "feature", True, 2), ("shifted", "pixel", False, None)),
            *(("bytes", "feature", False, 2), ("bytes", "pixel", True, None)),
        )
    )
]


def fitted(name: str, chosen: Sequence[Case]) -> list[Case]:
    """The same cases for an attack."""
    goals = sz.ATTACKS[name].goals
    return [fit(replace(each, attack=name, targeted=each.targeted and "targeted" in goals)) for each in chosen]


def cases(name: str) -> list[Case]:
    """The scenarios for an attack: each at night; by day every ninth, the next attack having the next ones."""
    return fitted(name, SCENARIOS if NIGHTLY else SCENARIOS[EVERY.index(name) % 9 :: 9])


@pytest.mark.parametrize("name", EVERY)
def test_claims_are_true_in_every_scenario(name, judge):
    wrong = {case: said for case in cases(name) if (said := trial(case, judge))}
    assert not wrong, "\n".join(f"{case}: {said}" for case, said in wrong.items())


@pytest.mark.parametrize("name", EVERY)
def test_claims_are_true_of_plain_questions(name, judge):
    asked = fitted(name, QUESTIONS)
    wrong = {case: said for case in asked if (said := trial(case, judge, twice=NIGHTLY))}
    assert not wrong, "\n".join(f"{case}: {said}" for case, said in wrong.items())


@pytest.mark.parametrize("case", QUESTIONS, ids=lambda case: f"{case.box}-{case.unit}-{case.targeted}-{case.budget}")
@pytest.mark.parametrize("name", ["sigma-zero", "pdpgd"])
def test_refining_makes_no_point_worse_or_illegal(name, case):
    case = replace(case, attack=name)
    asked, facts, rows = make(case), facts_of(case), np.arange(case.rows)
    before = attack(case, asked, asked.model).x_adv
    after = sz.refine(asked.model, asked.x, asked.y, before, queries=60, **question(case, asked))
    assert facts.legal(rows, after.numpy()) == []
    old, new = (facts.per_sample(rows, points.numpy()) for points in (before, after))
    assert (new["changes"] <= old["changes"]).all()


def test_plain_questions_have_every_outcome():
    """Else nothing would be claimed, and nothing could be false."""
    seen = set()
    for case in QUESTIONS:
        asked = make(case := replace(case, attack="pdpgd"))
        seen |= set(attack(case, asked, asked.model).outcome.tolist())
    assert {sz.Outcome.ALREADY, sz.Outcome.FOUND, sz.Outcome.NOT_FOUND, sz.Outcome.BEYOND_BUDGET} <= seen


@pytest.mark.parametrize("name", EVERY)
def test_every_attack_finds_something(name):
    """Else nothing would be claimed, and nothing could be false."""
    case = fit(Case(attack=name, shape=(3, 2, 2), rows=9, steps=30))
    asked = make(case)
    found = attack(case, asked, asked.model).outcome
    assert ((found == sz.Outcome.FOUND) | (found == sz.Outcome.BEYOND_BUDGET)).sum() > 2


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
        with pytest.raises(ValueError, match=f"{name} .*bounds"):
            attack(case, asked, asked.model)
        nothing = replace(case, rows=0)  # of which nothing is asked
        assert len(attack(nothing, make(nothing), asked.model)) == 0
        return
    found = int(attack(case, asked, asked.model).success.sum())
    assert found == 9 if box == "infinite" else found > 6
