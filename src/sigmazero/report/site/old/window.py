"""How far the axis of a curve goes: one slow attack is not to crush all others, and what is cut off is said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sigmazero.core import metrics
from sigmazero.core.metrics import Floats

TIMES = 3.0  # the axis goes so many times as far as the middle attack needs for nearly all that it fools
NEARLY = 0.95
MOST = 0.8  # it goes at least so far that the highest of the curves has so much of what it ever reaches
SPARE = 1.5  # what would fit into so much more is shown whole
MARGIN = 1.05


def last(found: Sequence[Floats], least: float = 1.0) -> float:
    """A little beyond the largest number of changes found, and beyond `least`.

    >>> last([np.array([2.0, 20.0, np.inf])])
    21.0
    """
    largest = [float(l0[np.isfinite(l0)].max(initial=0)) for l0 in found]
    return MARGIN * max([1.0, least, *largest])


def sensible_end(found: Sequence[Floats], least: float = 1.0) -> float:
    """Where an axis ends that shows most attacks well; the same as `last` where that does.

    Attacks that fool few samples, and those soon, do not cut off the one that fools nearly all.

    >>> fast, slow = np.array([2.0, 4.0, 9.0]), np.array([2.0, 300.0, 526.0])
    >>> sensible_end([fast, fast, slow]), sensible_end([fast, fast])
    (30.0, 9.450000000000001)
    >>> few = np.array([2.0, np.inf, np.inf])
    >>> sensible_end([few, few, slow])
    552.3000000000001
    """
    finite = [l0[np.isfinite(l0)] for l0 in found]
    reach = sorted(float(np.quantile(each, NEARLY, method="higher")) for each in finite if len(each))
    whole = last(found, least)
    if not reach:
        return whole
    wanted = max(least, TIMES * reach[(len(reach) - 1) // 2], _most(found))
    if wanted <= 0 or whole <= SPARE * wanted:
        return whole
    step = 10.0 ** math.floor(math.log10(wanted)) / 2.0
    return float(math.ceil(wanted / step) * step)


def _most(found: Sequence[Floats]) -> float:
    """The number of changes at which the highest curve has most of what any of them reaches."""
    share = MOST * max(float(np.isfinite(l0).mean()) for l0 in found if len(l0))
    return min(float(np.quantile(l0, share, method="inverted_cdf")) for l0 in found if len(l0))


def cut(found: Mapping[str, Floats], end: float) -> dict[str, float]:
    """The curves that go on beyond the end, by name, and how far.

    >>> cut({"a": np.array([1.0, 9.0]), "b": np.array([1.0, np.inf])}, 5.0)
    {'a': 9.0}
    """
    furthest = {name: float(l0[np.isfinite(l0)].max(initial=0)) for name, l0 in found.items()}
    return {name: k for name, k in furthest.items() if k > end}


def said(beyond: Mapping[str, float], end: float, word: str = "k") -> str:
    """That an axis is cut, in words; nothing where it is not.

    >>> said({"ead": 147.0, "fmn": 120.0}, 100.0), said({}, 100.0)
    ('cut at k = 100: ead goes on to 147, fmn to 120', '')
    """
    if not beyond:
        return ""
    (first, furthest), *others = beyond.items()
    told = [f"{first} goes on to {furthest:g}", *(f"{name} to {k:g}" for name, k in others)]
    return f"cut at {word} = {end:g}: {', '.join(told)}"


def weakness(l0: Floats, end: float) -> tuple[float, float]:
    """What attacks are ordered by, from the strongest on: their median, as everywhere; then how low the curve is.

    >>> weakness(np.array([1.0, 9.0, np.inf]), 10.0), weakness(np.array([1.0, np.inf, np.inf]), 10.0)
    ((9.0, 6.666666666666667), (inf, 7.0))
    """
    return metrics.median(l0), float(np.minimum(l0, end).mean())


def leader(found: Mapping[str, Any], end: float) -> str | None:
    """The strongest attack's name; None where there is none.

    >>> leader({"a": np.array([1.0, 9.0]), "b": np.array([1.0, np.inf])}, 10.0)
    'a'
    """
    return min(found, key=lambda name: weakness(found[name], end), default=None)
