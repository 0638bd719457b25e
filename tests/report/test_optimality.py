"""Curves, areas, envelopes and optimality against their definitions, written out sample by sample."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sigmazero.core import metrics
from sigmazero.report import optimality
from tests.report.test_measure import cell, facts_of

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


@given(L0, st.integers(0, 35))
def test_area_is_the_sum_of_the_steps(l0, k_max):
    # All jumps are at whole numbers, so between k and k + 1 the robust accuracy is 1 − ASR at k.
    wanted = sum(1 - metrics.asr(l0, k) for k in range(k_max))
    assert optimality.area(l0, k_max) == pytest.approx(wanted, abs=1e-9)


@given(L0, st.integers(0, 35))
def test_trapezoidal_area_by_hand(l0, k_max):
    clipped = [min(value, k_max) for value in l0]
    points = [(k, Fraction(sum(value > k for value in clipped), len(l0))) for k in sorted(set(clipped))]
    wanted = sum((b - a) * (high + low) / 2 for (a, high), (b, low) in itertools.pairwise(points))
    assert optimality.trapezoidal_area(l0, k_max) == pytest.approx(float(wanted), abs=1e-9)
    assert optimality.trapezoidal_area(l0, k_max) <= optimality.area(l0, k_max) + 1e-9


@pytest.mark.parametrize("k_max", [INF, -1, math.nan])
def test_bad_end_of_an_area_is_named(k_max):
    for function in (optimality.area, optimality.trapezoidal_area):
        with pytest.raises(ValueError, match="k_max"):
            function([1], k_max)


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


def test_optimality_by_hand():
    # ε = 6 and acc = 3/4. Trapezoid: A* = 2.25, A = 3, so 1 − 0.75/2.25. Steps: A* = 3, A = 4, so 1 − 1/1.5.
    best, worse = [0, 2, 4, 6], [0, 4, 6, INF]
    assert optimality.local_optimality(worse, best) == pytest.approx(2 / 3)
    assert optimality.local_optimality(worse, best, "step") == pytest.approx(1 / 3)
    assert optimality.local_optimality([0, INF, INF, INF], best, "step") == pytest.approx(0)


def test_the_trapezoid_rewards_a_missing_first_step():
    # The weakness of AttackBench's areas: [2, 2] is worse than [1, 2] and scores above 1. The exact area has no room.
    assert optimality.local_optimality([2, 2], [1, 2]) > 1
    assert optimality.local_optimality([2, 2], [1, 2], "step") == 0


@given(POOLS, st.sampled_from(["trapezoid", "step"]))
def test_the_envelope_itself_is_optimal(pool, rule):
    best = np.min(pool, axis=0)
    score = optimality.local_optimality(best, best, rule)
    assert score == 1 or math.isnan(score)
    for l0 in pool:
        exact = optimality.local_optimality(l0, best, "step")
        assert math.isnan(exact) or exact <= 1 + 1e-9


@pytest.mark.parametrize("best", [[0, 0], [INF, INF], [5, 5], [0, INF]])
def test_no_optimality_where_nothing_tells_attacks_apart(best):
    assert math.isnan(optimality.local_optimality(best, best, "step"))


def test_optimality_of_cells():
    cells = [
        (cell("a"), facts_of([0, 2, 4, 6])),
        (cell("b"), facts_of([INF, 6, 4, 0], row=[3, 2, 1, 0])),
        (cell("c", budget=24), facts_of([0, 2, 4, 6])),
    ]
    scores = optimality.optimality(cells)
    assert scores == {"a": 1, "b": pytest.approx(2 / 3)}
    assert optimality.optimality(cells, "step")["b"] == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match=r"differ in data_hash.*d: cells a; e: cells b"):
        optimality.optimality([cells[0], (cell("b", data_hash="e"), cells[1][1])])
    with pytest.raises(ValueError, match="no attacks"):
        optimality.optimality([])


def test_bad_optimality_is_named():
    with pytest.raises(ValueError, match="sample 1 has l0 1, the best of the pool is 2"):
        optimality.local_optimality([1, 1], [1, 2])
    with pytest.raises(ValueError, match="2 samples against 1"):
        optimality.local_optimality([1, 1], [1])
    with pytest.raises(ValueError, match="rule='simpson'"):
        optimality.local_optimality([1], [1], "simpson")  # type: ignore[arg-type]
