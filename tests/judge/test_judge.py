"""The judge of the sweep notices each kind of lie, and has never heard of sigmazero."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.helpers.cases import Case, make
from tests.helpers.trial import Count, attack, claims_of, trial

CASE = Case(shape=(3, 2, 2), rows=6, steps=20, mask="sample")


@pytest.fixture(scope="module")
def told():
    """Claims that are true: a success at row 0, one that was there before at row 1."""
    asked = make(CASE)
    claims = claims_of(attack(CASE, asked, asked.model))
    assert claims["success"][:2].all()
    assert claims["l0"][:2].tolist()[1] == 0 < claims["l0"][0]
    return claims, asked


def lie(name, row, value):
    def tell(claims, asked):
        claims[name][row] = value

    return tell


def point(change):
    def tell(claims, asked):
        claims["x_adv"][0] = change(claims["x_adv"][0], asked.x[0].numpy(), asked.mask.numpy())

    return tell


LIES = {
    "not fooled": (lambda claims, asked: claims["x_adv"].__setitem__(0, asked.x[0].numpy()), "the model is fooled in"),
    "outside": (point(lambda new, x, free: np.where(new != x, 1.5, new)), "leaves the box"),
    "not a number": (point(lambda new, x, free: np.where(new != x, np.nan, new)), "not finite"),
    "masked": (point(lambda new, x, free: np.where(free, new, 0.5)), "what the mask forbids"),
    "other bits": (point(lambda new, x, free: np.where(new == x, x * 0 - x * 0, new)), "changes what the mask forbids"),
    "one change less": (lie("l0", 0, 1e-9), "l0 is"),
    "pixels": (lie("l0_pixel", 0, 99), "l0_pixel is"),
    "a hidden success": (lie("success", 0, False), "a row without success is not its clean input"),
    "an invented success": (lie("outcome", 0, 2), "outcome is"),
    "found instead of already": (lie("outcome", 1, 1), "already there are"),
    "prediction": (lie("prediction", 0, 9), "prediction is"),
    "clean prediction": (lie("clean_prediction", 0, 9), "clean_prediction is"),
    "margin": (lie("margin", 0, 9.0), "margin is"),
    "forwards": (lie("forwards", 1, 2), "costs more than one forward"),
    "step": (lie("step_found", 0, -2), "step_found is"),
}


def test_the_truth_is_believed(told, judge):
    assert judge(CASE, told[0], None) == []


@pytest.mark.parametrize("kind", LIES)
def test_a_lie_is_noticed(kind, told, judge):
    claims = {name: values.copy() for name, values in told[0].items()}
    tell, said = LIES[kind]
    tell(claims, told[1])
    assert any(said in complaint for complaint in judge(CASE, claims, None))


def test_more_than_the_budget_is_noticed(told, judge):
    case = Case(**{**vars(CASE), "budget": 0})
    assert any("more than 0 changes" in complaint for complaint in judge(case, told[0], "l0"))


@pytest.mark.parametrize("unit", ["feature", "pixel"])
def test_a_point_that_was_found_and_lost_is_noticed(unit, judge):
    case = Case(**{**vars(CASE), "rows": 1, "unit": unit})
    asked = make(case)
    count = Count(asked.model)
    claims = claims_of(attack(case, asked, count.asked))
    shown = torch.cat(count.shown).numpy()
    assert claims["outcome"] == 1
    assert judge(case, claims, None, shown) == []
    assert len(shown) == claims["forwards"].sum()
    # The answer is no longer there: the sparsest point is another one, or the row is said to be safe.
    worse = {**claims, "l0": claims["l0"] + 1, "l0_pixel": claims["l0_pixel"] + 1}
    safe = {**claims, "l0": claims["l0"] * np.inf, "l0_pixel": claims["l0_pixel"] * np.inf}
    for lost in (worse, safe):
        assert any("the model was shown a point with" in complaint for complaint in judge(case, lost, None, shown))


@pytest.mark.parametrize("name", ["sigma-zero", "sparse-rs-min", "bb"])
def test_a_model_that_gives_the_same_memory_each_time_is_heard_each_time(name, judge):
    """Its answers to the clean inputs were all those of the last batch, and successes were claimed that were none."""
    assert trial(Case(attack=name, model="buffered", rows=7, batch_size=2), judge) == []


@pytest.mark.parametrize("name", ["sigma-zero", "sparse-rs-min"])
def test_a_model_that_writes_what_was_there_before_is_given_a_copy_too(name, judge):
    """x.clamp_(0, 1) changes no value of a clean input, and autograd refuses it all the same."""
    assert trial(Case(attack=name, model="inplace-same", rows=4), judge) == []


def test_channels_last_in_memory_the_same_is_found_to_the_last_bit(judge):
    """Sums in another order rounded otherwise; found by the sweep."""
    case = Case("bb", "batchnorm", classes=10, shape=(3, 5, 5), rows=9, dtype="float64", steps=2, batch_size=2)
    case = replace(case, layout="channels-last", values="upper", box="bytes", mask="own", unit="pixel", budget=3)
    assert trial(replace(case, targeted=True, seed=1019), judge) == []
