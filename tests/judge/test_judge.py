"""The judge notices each kind of lie, and has never heard of sigmazero."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.cases import Case, make
from tests.helpers.judge import figures, per_sample
from tests.helpers.spaces import SpaceCase, make_space
from tests.helpers.trial import Count, attack, claims_of, small, told_by, trial

BOX = Case(shape=(3, 2, 2), rows=6, steps=20, mask="sample")
BUDGET = Case("fmn", shape=(3, 2, 2), rows=6, steps=20, budget=2, targeted=True, seed=12)
SPACE = SpaceCase(seed=4, priced=True, steps=30)
PLACES: dict[str, Any] = {"box": BOX, "budget": BUDGET, "space": SPACE}


@pytest.fixture(scope="module")
def truths():
    """True claims and figures: row 0 is found, row 1 was there before, row 5 of the second is beyond its budget."""
    results = {}
    for place, case in PLACES.items():
        if isinstance(case, SpaceCase):
            plain, x, y, net = make_space(case)
            results[place] = small(case).run(net, x, y, space=plain.space())
        else:
            asked = make(case)
            results[place] = attack(case, asked, asked.model)
        assert results[place].outcome[:2].tolist() == [1, 0]
    assert results["budget"].outcome[5] == 7
    return {place: (claims_of(result), told_by(result)) for place, result in results.items()}


def put(row, **values):
    """Tell something else of a row."""
    return lambda claims: [claims[name].__setitem__(row, value) for name, value in values.items()]


def point(change):
    """Tell of another point of row 0, made of the true one, its clean input and where that may change."""

    def tell(claims):
        asked = make(BOX)
        assert asked.mask is not None
        claims["x_adv"][0] = change(claims["x_adv"][0], asked.x[0].numpy(), asked.mask.numpy())

    return tell


# What is told, and the field that must be complained of.
LIES = {
    "not fooled": ("box", point(lambda new, x, free: x), "success"),
    "outside": ("box", point(lambda new, x, free: np.where(new != x, 1.5, new)), "x_adv"),
    "not a number": ("box", point(lambda new, x, free: np.where(new != x, np.nan, new)), "x_adv"),
    "masked": ("box", point(lambda new, x, free: np.where(free, new, 0.5)), "x_adv"),
    "other bits": ("box", point(lambda new, x, free: np.where(new == x, x * 0 - x * 0, new)), "x_adv"),
    "one change less": ("box", put(0, l0=1e-9), "l0"),
    "pixels": ("box", put(0, l0_pixel=99), "l0_pixel"),
    "a cost in a box": ("box", put(0, cost=99), "cost"),
    "a hidden success": ("box", put(0, success=False), "success"),
    "a hidden point": ("box", put(0, success=False, outcome=2, l0=np.inf, l0_pixel=np.inf, cost=np.inf), "x_adv"),
    "success without an outcome": ("box", put(0, outcome=2), "outcome"),
    "found instead of already": ("box", put(1, outcome=1), "outcome"),
    "already instead of found": ("box", put(0, outcome=0), "outcome"),
    "prediction": ("box", put(0, prediction=9), "prediction"),
    "clean prediction": ("box", put(0, clean_prediction=9), "clean_prediction"),
    "margin": ("box", put(0, margin=9.0), "margin"),
    "forwards": ("box", put(1, forwards=2), "forwards"),
    "backwards": ("box", put(1, backwards=1), "backwards"),
    "step": ("box", put(0, step_found=-2), "step_found"),
    "beyond without a budget": ("box", put(0, success=False, outcome=7), "outcome"),
    "a success beyond the budget": ("budget", put(5, success=True, outcome=1), "success"),
    "beyond the budget, not counted": ("budget", put(5, l0=np.inf, l0_pixel=np.inf, cost=np.inf), "l0"),
    "beyond the budget, its input kept": ("budget", lambda c: put(5, x_adv=make(BUDGET).x[5])(c), "outcome"),
    "beyond the budget, its step forgotten": ("budget", put(5, step_found=-2), "step_found"),
    "within the budget, called beyond": ("budget", put(0, success=False, outcome=7), "outcome"),
    "another cost": ("space", put(0, cost=0.25), "cost"),
    "another count": ("space", put(0, l0=5), "l0"),
    "an illegal point": ("space", lambda c: put(0, x_adv=c["x_adv"][0] + 0.01)(c), "x_adv"),
    "of another row": ("space", lambda c: put(0, x_adv=c["x_adv"][2])(c), "x_adv"),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_truth_is_believed(place, truths, judge):
    assert judge(PLACES[place], *truths[place][:1], None, truths[place][1]) == []


@pytest.mark.parametrize("kind", LIES)
def test_a_lie_is_noticed(kind, truths, judge):
    place, tell, field = LIES[kind]
    claims = {name: values.copy() for name, values in truths[place][0].items()}
    tell(claims)
    assert any(said.startswith(f"{field}:") for said in judge(PLACES[place], claims))


@pytest.mark.parametrize("place", PLACES)
def test_each_false_figure_is_noticed(place, truths, judge):
    claims, told = truths[place]
    for name, value in told.items():
        false = {**told, name: 0.0 if np.isinf(value) else value + 0.125}
        assert [said.split(":")[0] for said in judge(PLACES[place], claims, None, false)] == [name]


def test_more_than_the_budget_of_an_attack_for_one_is_noticed(truths, judge):
    assert any(said.startswith("l0:") for said in judge(BUDGET, truths["budget"][0], "l0"))


def test_figures_of_points_by_hand():
    """Five images of 2 channels and 2 positions; class 1 where the sum is above 1."""
    x = np.zeros((5, 2, 2))
    x[1] = 1  # wrong already
    x_adv = x.copy()
    x_adv[0, :, 0] = 1, 0.5  # two features, one pixel
    x_adv[2] = 1  # four features, two pixels
    x_adv[3, 0, 0] = 0.5  # not enough

    def logits(points):
        total = points.sum((1, 2))
        return np.stack([np.ones_like(total), total], 1)

    clean, found, y = logits(x), logits(x_adv), np.zeros(5, dtype=int)
    found[4] = clean[4] = np.nan
    raw = (x, x_adv, y, clean, found)
    each = per_sample(*raw, budget=3)
    assert each["l0"].tolist() == [2, 0, 4, np.inf, np.inf]
    assert each["l0_pixel"].tolist() == [1, 0, 2, np.inf, np.inf]
    assert each["outcome"].tolist() == [1, 0, 7, 2, 3]
    assert each["success"].tolist() == [True, True, False, False, False]
    assert each["margin"][:4].tolist() == [-0.5, -3, -3, 0.5]
    assert each["clean_prediction"].tolist() == [0, 1, 0, 0, -1]
    passes: Any = {"forwards": np.array([3, 1, 4, 4, 1]), "backwards": np.array([2, 0, 2, 3, 0])}
    shown = figures(*raw, budget=3, ks=(0, 2, 3, 4), **passes)
    expected = {
        **{"samples": 5, "already_wrong": 0.2, "asr@0": 0.2, "asr@2": 0.4, "asr@3": 0.4, "asr@4": 0.6, "asr@inf": 0.6},
        **{"success": 0.4, "beyond_budget": 0.2, "median_l0": 4, "mean_l0": np.inf, "mean_l0_found": 2},
        **{"clean_accuracy": 0.6, "forwards": 2.6, "backwards": 1.4, "queries": 4},
    }
    assert shown == pytest.approx(expected)
    for even, median in ((4, 3.0), (2, 1.0)):  # the mean of the two middle ones
        assert figures(*(array[:even] for array in raw))["median_l0"] == median
    assert figures(*(array[[0, 3]] for array in raw))["median_l0"] == np.inf
    flat = x.reshape(5, 4), x_adv.reshape(5, 4)
    priced = per_sample(*flat, y, clean, found, sites=[[0, 2], [1]], costs=[5.0, 2.0])
    assert priced["l0"].tolist() == [1, 0, 2, np.inf, np.inf]
    assert priced["cost"].tolist() == [5, 0, 7, np.inf, np.inf]


@pytest.mark.parametrize("unit", ["feature", "pixel"])
def test_a_point_that_was_found_and_lost_is_noticed(unit, judge):
    case = replace(BOX, rows=1, unit=unit)
    asked = make(case)
    count = Count(asked.model)
    claims = claims_of(attack(case, asked, count.asked))
    shown = torch.cat(count.shown).numpy()
    assert claims["outcome"] == 1
    assert judge(case, claims, None, None, shown) == []
    assert len(shown) == claims["forwards"].sum()
    # The answer is no longer there: the sparsest point is another one, or the row is said to be safe.
    counts = ("l0", "l0_pixel", "cost")
    worse, safe = ({**claims, **{name: claims[name] + more for name in counts}} for more in (1, np.inf))
    for lost in (worse, safe):
        assert any(said.startswith("shown:") for said in judge(case, lost, None, None, shown))


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
