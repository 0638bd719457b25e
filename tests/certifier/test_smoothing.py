"""Randomized ablation: certificates against smoothed classifiers that are computed exactly."""

from fractions import Fraction
from itertools import combinations, product
from math import comb

import pytest
import torch

import sigmazero as sz
from sigmazero.certifier.smoothing import blanked, clopper_pearson, radius

SITES, KEEP = 6, 2
SHOWN = torch.stack(
    [
        torch.zeros(SITES, dtype=torch.bool).index_fill(0, torch.tensor(c), True)
        for c in combinations(range(SITES), KEEP)
    ]
)


def lookup(seed):
    """A base classifier of 3 classes with no rule in it: its logits are random for each blanked input of 0 and 1."""
    table = torch.randn(3**SITES, 3, generator=torch.Generator().manual_seed(seed))
    table[:, 0] += 1.5  # so that some inputs have a radius

    def model(x):
        digits = torch.where(x == 0.5, 2, x.long())
        return table[(digits * 3 ** torch.arange(SITES)).sum(1)]

    return model


def chances(model, points):
    """The exact chance of each class of the smoothed classifier: all ways to blank, one after the other."""
    asked = [blanked(point.expand(len(SHOWN), -1), SHOWN, "value", 0.5) for point in points]
    answers = model(torch.cat(asked)).argmax(1).view(len(points), -1)
    return torch.nn.functional.one_hot(answers, 3).double().mean(1)


POINTS = torch.tensor(list(product([0.0, 1.0], repeat=SITES)))


@pytest.mark.parametrize("seed", range(8))
def test_no_input_within_the_radius_has_another_class(seed):
    """All inputs of 0 and 1, all changes of them, all ways to blank."""
    exact = chances(lookup(seed), POINTS)
    best = exact.argmax(1)
    distance = (POINTS[:, None] != POINTS).sum(2)
    met = 0
    for row, point in enumerate(exact):
        top = point.sort(descending=True).values
        reach = radius(float(top[0]), float(top[1]), SITES, KEEP)
        assert (best[distance[row] <= reach] == best[row]).all()
        met += reach > 0
    assert met > 0


def test_the_bound_is_tight():
    """Where the radius ends, some base classifier does lose: one that tells a changed site whenever it sees it."""
    changed = radius(1.0, 0.0, SITES, 1) + 1

    def model(x):
        return torch.stack([torch.ones(len(x)), 2.0 * (x == 1).any(1)], 1)

    point = torch.zeros(1, SITES)
    point[0, :changed] = 1
    shown = torch.eye(SITES, dtype=torch.bool)
    lost = model(blanked(point.expand(SITES, -1), shown, "value", 0.5)).argmax(1).double().mean()
    assert lost >= 0.5


def test_intervals_hold_the_exact_chances():
    model = lookup(0)
    exact = chances(model, POINTS)
    found = sz.smooth(model, POINTS, torch.zeros(len(POINTS)).long(), keep=KEEP, draws=300, null=0.5)
    assert ((found.counts / 300 - exact).abs() < 0.15).all()
    top = exact.sort(descending=True).values
    sure = ~found.abstained
    assert sure.sum() > 10
    assert (found.prediction[sure] == exact.argmax(1)[sure]).all()
    assert (found.lower[sure] <= top[sure, 0]).all()
    assert (found.upper[sure] >= top[sure, 1]).all()
    real = torch.tensor([radius(float(a), float(b), SITES, KEEP) for a, b in top[:, :2]])
    assert (found.radius <= real).all()


def network(channels=3):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(channels * 16, 4)).requires_grad_(False)


def test_batches_seeds_and_ids():
    x, y, model = torch.rand(5, 3, 4, 4), torch.arange(5) % 4, network()
    whole = sz.smooth(model, x, y, keep=5, draws=60, unit="pixel")
    small = sz.smooth(model, x, y, keep=5, draws=60, unit="pixel", batch_size=7)
    alone = sz.smooth(model, x[3:], y[3:], keep=5, draws=60, unit="pixel", ids=[3, 4])
    other = sz.smooth(model, x, y, keep=5, draws=60, unit="pixel", seed=1)
    assert torch.equal(whole.counts, small.counts)
    assert torch.equal(whole.counts[3:], alone.counts)
    assert not torch.equal(whole.counts, other.counts)
    assert (whole.counts.sum(1) == 60).all()
    assert whole.sites == 16


def test_copies_show_exactly_what_they_keep_and_all_alike():
    seen = []

    def model(x):
        seen.append(x.clone())
        return torch.ones(len(x), 2)

    sz.smooth(model, torch.ones(2, 3, 4, 4), torch.tensor([0, 0]), keep=3, draws=400, unit="pixel", null=-1.0)
    shown = torch.cat(seen) == 1
    assert (shown.all(1) == shown.any(1)).all()  # a pixel with all its channels
    assert (shown[:, 0].flatten(1).sum(1) == 3).all()
    share = shown[:, 0].flatten(1).double().mean(0)
    assert ((share - 3 / 16).abs() < 0.06).all()  # five standard deviations of 800 draws


def test_doubled_inputs_tell_a_blank_from_a_value():
    found = sz.smooth(network(4), torch.rand(2, 2, 4, 4), torch.tensor([0, 1]), keep=3, draws=20, blank="doubled")
    assert found.counts.sum() == 40
    with pytest.raises(ValueError, match="outside the bounds"):
        sz.smooth(network(4), torch.full((1, 2, 4, 4), 2.0), torch.tensor([0]), keep=3, blank="doubled")


def test_what_is_not_finite_votes_for_nobody():
    found = sz.smooth(lambda x: torch.full((len(x), 2), torch.nan), torch.rand(1, 8), torch.tensor([0]), keep=2)
    assert found.counts.tolist() == [[0, 0]]
    assert found.prediction.tolist() == [-1]
    assert found.radius.tolist() == [-1]
    assert found.accuracy() == 0
    assert found.curve() == [(0, 0.0)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"keep": 0}, "keep=0 must be a whole number of features, 1 to 48"),
        ({"keep": 49}, "keep=49 must be"),
        ({"keep": 17, "unit": "pixel"}, "pixels, 1 to 16"),
        ({"draws": 0}, "draws=0 must be a whole number, 1 or more"),
        ({"confidence": 1}, "confidence=1 must lie between 0.5 and 1"),
        ({"blank": "mean"}, "blank='mean' is not one of 'value', 'doubled'"),
        ({"null": torch.zeros(5)}, "null of shape (5,) fits no input of shape (3, 4, 4)"),
        ({"null": float("nan")}, "null holds NaN or Inf"),
        ({"batch_size": 0}, "batch_size=0 must be"),
    ],
)
def test_wrong_values_are_named_in_one_line(given, said):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        sz.smooth(network(), torch.rand(2, 3, 4, 4), torch.tensor([0, 1]), **{"keep": 3, **given})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_without_classes_is_named():
    with pytest.raises(ValueError, match=r"the model returned shape \(64, 1\) for 64 inputs"):
        sz.smooth(lambda x: x[:, :1], torch.rand(1, 8), torch.tensor([0]), keep=2, draws=64)


def test_a_label_that_is_no_class_is_named():
    with pytest.raises(ValueError, match="label 5 in row 1 is none of the model's 2 classes"):
        sz.smooth(torch.nn.Linear(4, 2), torch.rand(2, 4), torch.tensor([0, 5]), keep=2, draws=5)


def upper_tail(successes, draws, chance):
    p = Fraction(chance)
    return sum(comb(draws, k) * p**k * (1 - p) ** (draws - k) for k in range(successes, draws + 1))


@pytest.mark.parametrize("draws", [1, 7, 30])
@pytest.mark.parametrize("error", [0.2, 1e-3, 1e-6])
def test_ends_are_where_the_exact_tails_meet_the_error(draws, error):
    for successes in range(draws + 1):
        low, high = clopper_pearson(successes, draws, error)
        assert 0 <= low < successes / draws < high <= 1 or successes in (0, draws)
        if successes:
            assert upper_tail(successes, draws, low) <= error
            assert upper_tail(successes, draws, low + 1e-6) > error
        else:
            assert low == 0
        if successes < draws:
            assert upper_tail(draws - successes, draws, 1 - Fraction(high)) <= error
            assert upper_tail(draws - successes, draws, 1 - Fraction(high) + Fraction(1, 10**6)) > error
        else:
            assert high == 1
