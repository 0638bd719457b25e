"""Intervals against printed values, and against chances that are counted out."""

import itertools
import math

import pytest

from sigmazero.report import intervals

INF = math.inf


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
