"""Confidence intervals, from the samples alone: of a share, of a median, and of differences between paired runs."""

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

Interval = tuple[float, float]
LEVEL = 0.95


def wilson(successes: int, n: int, level: float = LEVEL) -> Interval:
    """Return Wilson's score interval of a share.

    >>> [round(end, 4) for end in wilson(81, 263)]
    [0.2553, 0.3662]
    """
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"{successes} successes of {n} samples: give at least one sample and 0 to n successes")
    z = _quantile(level)
    share, spread = successes / n, z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return (0.0 if successes == 0 else centre - half), (1.0 if successes == n else centre + half)


def median_interval(values: ArrayLike, level: float = LEVEL) -> Interval:
    """Return the interval of a median by order statistics, which holds whatever the distribution is.

    The ends are values that occur, so they may be infinite. With five values or fewer they are the extremes, which
    cover the median with less than 95 %.

    >>> median_interval(range(100)), median_interval([1, 2, 3, 4, 5, 6, 7, np.inf, np.inf])
    ((39.0, 60.0), (2.0, inf))
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    if not n:
        raise ValueError("no values have no median; give one or more")
    rank = few_heads(n, _tail(level))
    return float(ordered[rank]), float(ordered[n - 1 - rank])


def few_heads(n: int, tail: float) -> int:
    """Return the most heads of n fair coins that are so few that the chance of no more is at most `tail`; at least 0.

    >>> few_heads(64, 0.05)
    24
    """
    below = 0.0
    for heads in range((n + 1) // 2):
        # By logarithms: 2**n is too large for n in the thousands.
        below += math.exp(math.lgamma(n + 1) - math.lgamma(heads + 1) - math.lgamma(n - heads + 1) - n * math.log(2))
        if below > tail:
            return max(heads - 1, 0)
    return (n - 1) // 2


def paired_difference(before: ArrayLike, after: ArrayLike, level: float = LEVEL) -> Interval:
    """Return the interval of a difference of shares, after less before, on the same samples (Agresti and Min).

    >>> [round(end, 3) for end in paired_difference([1, 1, 0, 0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 0, 0, 0, 0])]
    [0.021, 0.646]
    """
    first, second = (np.asarray(each, dtype=bool) for each in (before, after))
    n = len(first) + 2
    gained, lost = (float((one & ~other).sum()) + 0.5 for one, other in ((second, first), (first, second)))
    centre = (gained - lost) / n
    half = _quantile(level) * math.sqrt(gained + lost - (gained - lost) ** 2 / n) / n
    return max(centre - half, -1.0), min(centre + half, 1.0)


def _quantile(level: float) -> float:
    return NormalDist().inv_cdf(1 - _tail(level))


def _tail(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"level={level} must lie between 0 and 1, such as 0.95")
    return (1 - level) / 2
