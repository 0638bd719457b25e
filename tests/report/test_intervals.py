"""Intervals against printed values, and against resampling written out."""

import itertools
import math
from statistics import NormalDist

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sigmazero.core import metrics
from sigmazero.report import intervals

INF = math.inf
L0 = st.lists(st.one_of(st.integers(0, 30), st.just(INF)), min_size=1, max_size=30)


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


def test_bootstrap_median_has_the_bootstrap_distribution():
    for l0 in ([1, 2, 4], [1, 2, 4, INF], [3, 5]):
        medians = [metrics.median(sample) for sample in itertools.product(l0, repeat=len(l0))]
        ordered = sorted(medians)
        for level in (0.3, 0.5, 0.8, 0.95):
            got = intervals.bootstrap_median(l0, level, resamples=40_000)
            for end, tail in zip(got, ((1 - level) / 2, (1 + level) / 2), strict=True):
                # The end lies where all resamples, counted out, have their quantile, up to the noise of drawing.
                below = sum(value < end for value in ordered) / len(ordered)
                upto = sum(value <= end for value in ordered) / len(ordered)
                assert below - 0.01 <= tail <= upto + 0.01


@given(L0, st.integers(0, 5))
@settings(max_examples=50)
def test_bootstrap_median_is_deterministic_and_ordered(l0, seed):
    low, high = intervals.bootstrap_median(l0, 0.9, seed, 500)
    assert (low, high) == intervals.bootstrap_median(list(reversed(l0)), 0.9, seed, 500)
    assert min(l0) <= low <= high <= max(l0)


def test_bootstrap_median_of_one_value_and_of_failures():
    assert intervals.bootstrap_median([7]) == (7, 7)
    assert intervals.bootstrap_median([INF] * 4) == (INF, INF)
    low, high = intervals.bootstrap_median([1] * 50 + [INF] * 50)
    assert (low, high) == (1, INF)


def test_bad_intervals_are_named():
    for successes, n in ((3, 2), (-1, 2), (0, 0)):
        with pytest.raises(ValueError, match=f"{successes} successes of {n}"):
            intervals.wilson(successes, n)
    for level in (0, 1, 95):
        with pytest.raises(ValueError, match=f"level={level}"):
            intervals.wilson(1, 2, level)
        with pytest.raises(ValueError, match=f"level={level}"):
            intervals.bootstrap_median([1], level)
    with pytest.raises(ValueError, match="resamples=0"):
        intervals.bootstrap_median([1], resamples=0)
