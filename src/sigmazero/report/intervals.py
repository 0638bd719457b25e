"""How sure a figure is: intervals for shares and medians, from the samples alone."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from sigmazero.core.metrics import Floats, checked

Interval = tuple[float, float]


def wilson(successes: int, n: int, level: float = 0.95) -> Interval:
    """Wilson's score interval for a share.

    >>> [round(end, 4) for end in wilson(81, 263)]
    [0.2553, 0.3662]
    """
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"{successes} successes of {n}: there must be one sample or more, and 0 to n successes")
    z = NormalDist().inv_cdf(1 - _tail(level))
    share, spread = successes / n, z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return (0.0 if successes == 0 else centre - half), (1.0 if successes == n else centre + half)


def bootstrap_median(l0: ArrayLike, level: float = 0.95, seed: int = 0, resamples: int = 10_000) -> Interval:
    """Bootstrap interval of the median, by percentiles; an end is infinite where the median may be.

    >>> bootstrap_median([1, 2, 3, 4, 5, np.inf, np.inf])
    (2.0, inf)
    """
    ordered = np.sort(checked(l0))
    n = len(ordered)
    low, high = (n - 1) // 2, n // 2
    rng = _rng(seed, resamples)
    # A resample is n uniform draws of a place in `ordered`; its median needs only the middle ones of them. The j-th
    # smallest of n uniforms has a beta distribution, and so has the gap to the next: nothing of size n is drawn.
    first = rng.beta(low + 1, n - low, resamples)
    second = first + (1 - first) * rng.beta(1, n - low - 1, resamples) if high > low else first
    places = [np.minimum((u * n).astype(np.int64), n - 1) for u in (first, second)]
    return _percentiles((ordered[places[0]] + ordered[places[1]]) / 2, level)


def _tail(level: float) -> float:
    """What an interval leaves out on either side."""
    if not 0 < level < 1:
        raise ValueError(f"level={level}: it must lie between 0 and 1, such as 0.95")
    return (1 - level) / 2


def _rng(seed: int, resamples: int) -> np.random.Generator:
    if resamples < 1:
        raise ValueError(f"resamples={resamples}: it must be 1 or more")
    return np.random.default_rng(seed)


def _percentiles(values: Floats, level: float) -> Interval:
    """The ends between which a share of `level` lies, each a value that occurs: between infinities is no mean."""
    ordered = np.sort(values)
    low = math.floor(_tail(level) * (len(ordered) - 1))
    return float(ordered[low]), float(ordered[len(ordered) - 1 - low])
