"""Exact intervals for the chance behind a count (Clopper and Pearson, 1934), and the odds of meeting a changed site."""

import math
from bisect import bisect_left
from fractions import Fraction
from functools import lru_cache

import torch

from sigmazero.core.problem import integer

# The sums below are of positive numbers that are each right to about 1e-9 at a million draws. By so much the error that
# an interval may make is reduced, so that rounding never makes an interval too narrow.
ROUNDING = 1e-6


def clopper_pearson(successes: int, draws: int, error: float) -> tuple[float, float]:
    """Ends between which the chance lies; each end alone is wrong in at most `error` of all experiments.

    >>> [round(end, 4) for end in clopper_pearson(8, 10, 0.025)]
    [0.4439, 0.9748]
    """
    if not (integer(successes) and integer(draws) and 0 <= successes <= draws and draws >= 1):
        raise ValueError(f"{successes} successes of {draws}: there must be one draw or more, and 0 to all successes")
    if not 0 < error < 0.5:
        raise ValueError(f"error={error!r} must lie between 0 and 0.5, such as 0.001")
    upper = math.nextafter(1 - _lower(draws - successes, draws, error), 2)
    return _lower(successes, draws, error), min(1.0, upper)


@lru_cache(maxsize=65536)
def _lower(successes: int, draws: int, error: float) -> float:
    """The largest chance at which so many successes or more come up in at most `error` of all experiments."""
    if successes == 0:
        return 0.0
    k = torch.arange(successes, draws + 1, dtype=torch.float64, device="cpu")
    misses = draws - k
    ways = math.lgamma(draws + 1) - torch.lgamma(k + 1) - torch.lgamma(misses + 1)
    low, high = 0.0, successes / draws
    while (middle := (low + high) / 2) not in (low, high):
        tail = (ways + k * math.log(middle) + misses * math.log1p(-middle)).exp().sum()
        low, high = (middle, high) if float(tail) <= error * (1 - ROUNDING) else (low, middle)
    return low


@lru_cache(maxsize=64)
def odds(sites: int, keep: int) -> tuple[Fraction, ...]:
    """For 0, 1, 2, ... changed sites: how probably `keep` random ones of all meet one; up to the first 1/2 or more.

    1 − C(sites − changed, keep) / C(sites, keep), exactly.

    >>> [str(each) for each in odds(8, 2)]
    ['0', '1/4', '13/28', '9/14']
    """
    missed, found = Fraction(1), [Fraction(0)]
    while found[-1] < Fraction(1, 2):
        left = sites - len(found) + 1
        missed *= Fraction(left - keep, left)
        found.append(1 - missed)
    return tuple(found)


def radius(lower: float, upper: float, sites: int, keep: int) -> int:
    """How many sites may change before another class can have more votes; −1 where it may have them already.

    The first class is met with a chance of `lower` or more, each other with one of `upper` or less. Changes alter the
    draws that meet one, and no other: they take their odds from the first at most, and give them to another at most.

    >>> radius(0.99, 0.01, 784, 45), radius(0.5, 0.4, 784, 45), radius(0.3, 0.4, 784, 45)
    (11, 0, -1)
    """
    gap = Fraction(lower) - Fraction(upper)
    return bisect_left(odds(sites, keep), gap / 2) - 1 if gap > 0 else -1
