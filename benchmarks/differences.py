"""Say how sure the difference of two attacks is."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

DRAWS = 4_000_000  # counts that a bootstrap holds at a time: 32 MB


def paired_bootstrap(
    a: ArrayLike, b: ArrayLike, level: float = 0.95, seed: int = 0, resamples: int = 10_000, cap: float = math.inf
) -> tuple[float, float]:
    """Bootstrap interval of the mean of a − b over samples, by percentiles; `a` and `b` in the same order.

    A sample that neither fools makes no difference. One that only one fools makes an infinite one; `cap`, say the
    number of features, stands for infinity instead.

    >>> paired_bootstrap([3, 4, np.inf], [3, 4, np.inf])
    (0.0, 0.0)
    """
    if np.shape(a) != np.shape(b) or np.ndim(a) != 1 or not np.size(a):
        raise ValueError(f"a has shape {np.shape(a)}, b {np.shape(b)}: give one number for each of the same samples")
    if not 0 < level < 1 or resamples < 1:
        raise ValueError(f"level={level}, resamples={resamples}: give a level between 0 and 1, and 1 resample or more")
    left, right = (np.minimum(np.asarray(each, dtype=np.float64), cap) for each in (a, b))
    alike = left == right  # also where both are infinite, and their difference would be none
    steps, counts = np.unique(np.where(alike, 0.0, left - np.where(alike, 0.0, right)), return_counts=True)
    if steps[0] == -math.inf and steps[-1] == math.inf:
        raise ValueError("each side fails where the other does not, so there is no mean difference: give a cap")
    finite = np.isfinite(steps)
    rng, at_once = np.random.default_rng(seed), max(1, DRAWS // len(steps))
    means: list[NDArray[np.float64]] = []
    for start in range(0, resamples, at_once):
        # How often each difference is drawn is all that a resample is.
        drawn = rng.multinomial(len(left), counts / len(left), size=min(at_once, resamples - start))
        part = drawn[:, finite] @ steps[finite] / len(left)
        means.append(np.where(drawn[:, ~finite].any(axis=1), steps[~finite].sum(), part))
    ordered = np.sort(np.concatenate(means))
    low = math.floor((1 - level) / 2 * (len(ordered) - 1))  # a value that occurs: between infinities is no mean
    return float(ordered[low]), float(ordered[len(ordered) - 1 - low])
