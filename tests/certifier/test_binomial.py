"""Intervals and odds, against sums and enumeration in exact numbers."""

from fractions import Fraction
from itertools import combinations
from math import comb

import pytest

from sigmazero.certifier.binomial import clopper_pearson, odds, radius


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


def test_many_draws_against_the_beta_distribution():
    beta = pytest.importorskip("scipy.stats", reason="scipy has the reference of these intervals").beta
    for successes, draws in ((1, 100_000), (63_000, 100_000), (99_990, 100_000), (9, 1000)):
        low, high = clopper_pearson(successes, draws, 1e-4)
        exact = beta.ppf(1e-4, successes, draws - successes + 1), beta.ppf(1 - 1e-4, successes + 1, draws - successes)
        assert low <= exact[0] <= low * (1 + 1e-5)
        assert high * (1 - 1e-5) <= exact[1] <= high


def test_odds_of_meeting_a_change_by_enumeration():
    for sites in range(2, 8):
        for keep in range(1, sites + 1):
            shown = [set(each) for each in combinations(range(sites), keep)]
            for changed, found in enumerate(odds(sites, keep)):
                met = sum(bool(each & set(range(changed))) for each in shown)
                assert found == Fraction(met, len(shown))


def test_a_radius_is_the_last_at_which_the_gap_is_wider_than_both_losses():
    assert radius(1.0, 0.0, 4, 1) == 1  # 1 change of 4: 3/4 against 1/4; 2 changes: a tie
    assert radius(1.0, 0.5, 4, 1) == 0  # 1 change of 4: 3/4 against 3/4
    assert radius(0.5, 0.5, 4, 1) == -1


def test_wrong_counts_are_named():
    with pytest.raises(ValueError, match="3 successes of 2"):
        clopper_pearson(3, 2, 0.1)
    with pytest.raises(ValueError, match=r"error=0\.7 must lie between 0 and 0\.5"):
        clopper_pearson(1, 2, 0.7)
