"""Numbers of changes at which attacks differ, for tables: at a usual number all may be at 100 %, or none above 0."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from sigmazero.core.metrics import Floats
from sigmazero.report.site.old import measure
from sigmazero.report.site.old.measure import COST, Measured
from sigmazero.report.site.old.proved import proved_ks

# Round numbers, close enough to each other to choose from.
ROUND = (
    *(*range(1, 11), 12, 15, 18, 20, 24, 30),
    *(35, 40, 50, 60, 75),
    *(scale * k for scale in (100, 1000, 10_000, 100_000) for k in (1, 1.5, 2, 3, 5, 7.5)),
)
BANDS = ((0.05, 0.4), (0.4, 0.75), (0.75, 0.995))  # of the strongest attack's success: one number from each


def listed(cells: Sequence[Measured]) -> list[float]:
    """Round numbers up to the first that no attack needs more than; nothing for costs, or where all have budgets."""
    found = [l0 for group in _groups(cells) for l0 in group]
    last = max((float(l0[np.isfinite(l0)].max(initial=0)) for l0 in found), default=0.0)
    few = [float(k) for k in ROUND if k < last]
    return [*few, float(ROUND[len(few)])] if few and len(few) < len(ROUND) else few


def separating(cells: Sequence[Measured]) -> list[float]:
    """Up to three numbers of changes: one where the strongest has begun, one near its half, one near its end.

    Of the round numbers of each kind it is the one at which attacks on the same model differ most, on average over
    pairs and models. What fits the inputs where there is nothing to tell apart. Besides, what something is proved at.
    """
    ks, groups = listed(cells), _groups(cells)
    if not ks:
        return measure.fitting(cells)
    leading, apart = np.zeros(len(ks)), np.zeros(len(ks))
    for group in groups:
        rates = np.array([[float((l0 <= k).mean()) for k in ks] for l0 in group])
        leading += rates.max(0) / len(groups)
        pairs = [np.abs(rates[i] - rates[j]) for i, j in combinations(range(len(group)), 2)]
        apart += np.mean(pairs, axis=0) / len(groups) if pairs else 0.0
    chosen = []
    for low, high in BANDS:
        within = [place for place, rate in enumerate(leading) if low <= rate < high]
        if within:
            middle = (low + high) / 2
            chosen.append(
                ks[max(within, key=lambda at: (round(float(apart[at]), 6), -abs(float(leading[at]) - middle)))]
            )
    return sorted({*chosen, *proved_ks(cells)}) if chosen else measure.fitting(cells)


def _groups(cells: Sequence[Measured]) -> list[list[Floats]]:
    """The changes of the runs that compete with each other."""
    held: dict[tuple[object, ...], list[Floats]] = {}
    for info, facts in cells:
        if info.budget is None and info.unit != COST:
            same = (info.model, info.model_sha256, info.data_hash, info.goal, info.unit, info.space)
            held.setdefault(same, []).append(measure.changes(facts, info.unit))
    return list(held.values())
