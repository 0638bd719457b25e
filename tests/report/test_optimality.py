"""Curves and envelopes against their definitions, written out sample by sample."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sigmazero.core import metrics
from sigmazero.report import optimality
from tests.report.test_measure import facts_of

INF = math.inf
L0 = st.lists(st.one_of(st.integers(0, 30), st.just(INF)), min_size=1, max_size=30)
POOLS = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.lists(st.one_of(st.integers(0, 9), st.just(INF)), min_size=n, max_size=n), min_size=1)
)


@given(L0)
def test_curve_is_the_asr(l0):
    ks, rates = optimality.curve(l0)
    assert ks[0] == 0
    assert (np.diff(ks) > 0).all()
    assert np.isfinite(ks).all()
    for k in np.arange(0, 31, 0.5):
        assert rates[np.searchsorted(ks, k, side="right") - 1] == metrics.asr(l0, k)
    assert rates[-1] == metrics.asr(l0)


@given(POOLS, st.randoms(use_true_random=False), st.sampled_from(["feature", "pixel"]))
def test_envelope_is_the_best_by_row(pool, random, unit):
    n = len(pool[0])
    attacks = []
    for l0 in pool:
        order = random.sample(range(n), n)
        attacks.append(facts_of([l0[i] for i in order], row=[10 + i for i in order]))
    best = optimality.envelope(attacks, unit)
    assert best.row.tolist() == list(range(10, 10 + n))
    for i in range(n):
        wanted = min(l0[i] for l0 in pool)
        assert best.l0[i] == wanted * (2 if unit == "pixel" else 1)
        assert best.winner[i] == (-1 if wanted == INF else [l0[i] for l0 in pool].index(wanted))


def test_envelope_names_rows_that_differ():
    with pytest.raises(ValueError, match=r"attack 1 .* it lacks 1, 2 and has besides 7"):
        optimality.envelope([facts_of([1, 2, 3]), facts_of([1, 2], row=[0, 7])])
    with pytest.raises(ValueError, match="it lacks none and has besides 2, 3, 4, 5, 6 and 3 more"):
        optimality.envelope([facts_of([1, 2]), facts_of(range(10))])
    with pytest.raises(ValueError, match="more than once: 3"):
        optimality.envelope([facts_of([1, 2], row=[3, 3])])
    with pytest.raises(ValueError, match="no attacks"):
        optimality.envelope([])
    with pytest.raises(ValueError, match="unit='channel'"):
        optimality.envelope([facts_of([1])], "channel")
