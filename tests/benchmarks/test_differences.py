"""Intervals of differences against resampling written out."""

import math

import numpy as np
import pytest

from benchmarks import differences

INF = math.inf


def test_paired_bootstrap_finds_a_shift_and_only_then():
    rng = np.random.default_rng(3)
    a = rng.integers(5, 60, 400)
    noise = rng.integers(-2, 3, 400)
    low, high = differences.paired_bootstrap(a, a + noise)
    assert low < 0 < high
    low, high = differences.paired_bootstrap(a + 1, a + noise)
    assert 0 < low < 1 < high + 0.2
    mean, half = (1 - noise).mean(), 1.96 * noise.std() / 20
    assert (low, high) == pytest.approx((mean - half, mean + half), abs=0.02)


def test_paired_bootstrap_matches_plain_resampling(monkeypatch):
    a, b = np.array([1.5, 2, 7, 4, 4]), np.array([1, 3.25, 2, 4, 9])
    places = np.random.default_rng(0).integers(0, 5, (200_000, 5))
    wanted = np.quantile((a - b)[places].mean(1), [0.1, 0.9])
    assert differences.paired_bootstrap(a, b, 0.8, resamples=50_000) == pytest.approx(tuple(wanted), abs=0.1)
    whole = differences.paired_bootstrap(a, b, 0.8, resamples=1000)
    monkeypatch.setattr(differences, "DRAWS", 7)  # a resample or so at a time
    assert differences.paired_bootstrap(a, b, 0.8, resamples=1000) == whole


def test_paired_bootstrap_with_failures():
    assert differences.paired_bootstrap([1, INF], [1, INF]) == (0, 0)
    assert differences.paired_bootstrap([INF] * 5, [1] * 5) == (INF, INF)
    assert differences.paired_bootstrap([1] * 5, [INF] * 5) == (-INF, -INF)
    assert differences.paired_bootstrap([INF] * 5, [1] * 5, cap=11) == (10, 10)
    low, high = differences.paired_bootstrap([1] * 20 + [INF], [1] * 21)
    assert (low, high) == (0, INF)
    with pytest.raises(ValueError, match="give a cap"):
        differences.paired_bootstrap([1, INF], [INF, 1])


def test_bad_arguments_are_named():
    for level in (0, 1, 95):
        with pytest.raises(ValueError, match=f"level={level}"):
            differences.paired_bootstrap([1], [1], level)
    with pytest.raises(ValueError, match="resamples=0"):
        differences.paired_bootstrap([1], [1], resamples=0)
    with pytest.raises(ValueError, match=r"\(1,\)"):
        differences.paired_bootstrap([1], [1, 2])
