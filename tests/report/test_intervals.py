"""Intervals against printed values, and against chances that are counted out."""

import itertools
import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sigmazero.report import intervals

INF = math.inf


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    # Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_against_printed_values(successes, n, low, high):
    assert intervals.wilson(successes, n) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_wilson_inverts_the_score_test(case, level):
    successes, n = case
    low, high = intervals.wilson(successes, n, level)
    assert 0 <= low <= successes / n <= high <= 1
    assert intervals.wilson(n - successes, n, level) == pytest.approx((1 - high, 1 - low))
    z = NormalDist().inv_cdf((1 + level) / 2)
    for end in {low, high} - {0.0, 1.0}:
        assert (successes / n - end) ** 2 == pytest.approx(z * z * end * (1 - end) / n, abs=1e-9)


@given(st.lists(st.one_of(st.integers(0, 30), st.just(INF)), min_size=1, max_size=60), st.floats(0.5, 0.999))
def test_median_interval_leaves_out_what_coins_rarely_show(l0, level):
    low, high = intervals.median_interval(l0, level)
    ordered, n = sorted(l0), len(l0)
    rare = [sum(math.comb(n, k) for k in range(m + 1)) / 2**n <= (1 - level) / 2 for m in range(n // 2)]
    beyond = max(sum(rare) - 1, 0)
    assert (low, high) == (ordered[beyond], ordered[n - 1 - beyond])


def test_paired_difference_covers_the_truth_and_turns_its_sign():
    n = 14
    for up, down in ((0.1, 0.1), (0.3, 0.1), (0.5, 0.0), (0.2, 0.4)):
        covered = 0.0
        for gained, lost in itertools.product(range(n + 1), repeat=2):
            same = n - gained - lost
            if same < 0:
                continue
            before, after = [0] * gained + [1] * lost + [1] * same, [1] * gained + [0] * lost + [1] * same
            low, high = intervals.paired_difference(before, after)
            assert intervals.paired_difference(after, before) == pytest.approx((-high, -low))
            chance = math.comb(n, gained) * math.comb(n - gained, lost) * up**gained * down**lost
            covered += chance * (1 - up - down) ** same * (low <= up - down <= high)
        assert covered > 0.9, (up, down)


def test_bad_intervals_are_refused_by_value():
    for successes, n in ((3, 2), (-1, 2), (0, 0)):
        with pytest.raises(ValueError, match=f"{successes} successes of {n}"):
            intervals.wilson(successes, n)
    for level in (0, 1, 95):
        with pytest.raises(ValueError, match=f"level={level}"):
            intervals.median_interval([1, 2], level)
    with pytest.raises(ValueError, match="one or more"):
        intervals.median_interval([])
