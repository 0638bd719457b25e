"""Figures against their definitions, written out sample by sample."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sigmazero.report import measure
from sigmazero.store.facts import KINDS, CellInfo, Facts

INF = math.inf
L0 = st.lists(st.one_of(st.integers(0, 30), st.just(INF)), min_size=1, max_size=30)
POOLS = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.lists(st.one_of(st.integers(0, 9), st.just(INF)), min_size=n, max_size=n), min_size=1)
)


def facts_of(l0, row=None, **more) -> Facts:
    """Facts with this l0 in features, its double in pixels, and zeros elsewhere."""
    l0 = np.asarray(l0, dtype=np.float64)
    n = len(l0)
    columns: dict[str, Any] = {name: np.zeros(n, kind) for name, kind in KINDS.items()}
    columns |= {"row": np.arange(n) if row is None else np.asarray(row), "l0": l0, "l0_pixel": 2 * l0}
    columns |= {"outcome": np.where(l0 == 0, 0, np.where(np.isfinite(l0), 1, 2)).astype(np.int8)}
    columns |= {name: np.asarray(value, KINDS[name]) for name, value in more.items()}
    return Facts(**columns, offsets=np.zeros(n + 1, np.int64), index=np.zeros(0, np.int64), value=np.zeros(0))


def cell(key="a", rows=4, **more) -> CellInfo:
    given: dict[str, Any] = {"model": "M1", "dataset": "mnist", "attack": "sigma-zero", "parameters": {"steps": 100}}
    given |= {"version": 1, "steps": 100, "unit": "feature", "goal": "untargeted", "budget": None, "seed": 0}
    given |= {"precision": "fp32", "model_sha256": "m", "data_hash": "d"}
    return CellInfo(key=key, rows=rows, **(given | more))


@given(L0, st.one_of(st.integers(0, 31), st.just(INF)))
def test_asr_counts_all_samples(l0, k):
    assert measure.asr(l0, k) == sum(value <= k and value < INF for value in l0) / len(l0)


@given(L0)
def test_curve_is_the_asr(l0):
    ks, rates = measure.curve(l0)
    assert ks[0] == 0
    assert (np.diff(ks) > 0).all()
    assert np.isfinite(ks).all()
    for k in np.arange(0, 31, 0.5):
        assert rates[np.searchsorted(ks, k, side="right") - 1] == measure.asr(l0, k)
    assert rates[-1] == measure.asr(l0)


@given(L0)
def test_median_and_mean(l0):
    ordered, n = sorted(l0), len(l0)
    assert measure.median(l0) == (ordered[n // 2] if n % 2 else (ordered[n // 2 - 1] + ordered[n // 2]) / 2)
    assert measure.mean(l0) == pytest.approx(sum(l0) / n)


@pytest.mark.parametrize(
    ("l0", "middle"),
    [([5], 5), ([1, 2], 1.5), ([3, 1, 2], 2), ([1, INF], INF), ([INF], INF), ([1, 2, INF], 2), ([1, 2, 3, INF], 2.5)],
)
def test_medians_with_infinities(l0, middle):
    assert measure.median(l0) == middle


@given(L0, st.integers(0, 35))
def test_area_is_the_sum_of_the_steps(l0, k_max):
    # All jumps are at whole numbers, so between k and k + 1 the robust accuracy is 1 − ASR at k.
    wanted = sum(1 - measure.asr(l0, k) for k in range(k_max))
    assert measure.area(l0, k_max) == pytest.approx(wanted, abs=1e-9)


@given(L0, st.integers(0, 35))
def test_trapezoidal_area_by_hand(l0, k_max):
    clipped = [min(value, k_max) for value in l0]
    points = [(k, Fraction(sum(value > k for value in clipped), len(l0))) for k in sorted(set(clipped))]
    wanted = sum((b - a) * (high + low) / 2 for (a, high), (b, low) in itertools.pairwise(points))
    assert measure.trapezoidal_area(l0, k_max) == pytest.approx(float(wanted), abs=1e-9)
    assert measure.trapezoidal_area(l0, k_max) <= measure.area(l0, k_max) + 1e-9


@pytest.mark.parametrize("function", [measure.asr, measure.median, measure.mean, measure.curve])
@pytest.mark.parametrize(
    ("l0", "message"),
    [([], r"shape \(0,\)"), ([[1.0]], r"shape \(1, 1\)"), ([1, math.nan], "sample 1 is nan"), ([-1], "sample 0 is -1")],
)
def test_bad_l0_is_named(function, l0, message):
    with pytest.raises(ValueError, match=message):
        function(l0)


@pytest.mark.parametrize("k", [-1, math.nan])
def test_bad_k_is_named(k):
    with pytest.raises(ValueError, match=f"k={k}"):
        measure.asr([1], k)


@pytest.mark.parametrize("k_max", [INF, -1, math.nan])
def test_bad_end_of_an_area_is_named(k_max):
    for function in (measure.area, measure.trapezoidal_area):
        with pytest.raises(ValueError, match="k_max"):
            function([1], k_max)


@given(POOLS, st.randoms(use_true_random=False), st.sampled_from(["feature", "pixel"]))
def test_envelope_is_the_best_by_row(pool, random, unit):
    n = len(pool[0])
    attacks = []
    for l0 in pool:
        order = random.sample(range(n), n)
        attacks.append(facts_of([l0[i] for i in order], row=[10 + i for i in order]))
    best = measure.envelope(attacks, unit)
    assert best.row.tolist() == list(range(10, 10 + n))
    for i in range(n):
        wanted = min(l0[i] for l0 in pool)
        assert best.l0[i] == wanted * (2 if unit == "pixel" else 1)
        assert best.winner[i] == (-1 if wanted == INF else [l0[i] for l0 in pool].index(wanted))


def test_envelope_names_rows_that_differ():
    with pytest.raises(ValueError, match=r"attack 1 .* it lacks 1, 2 and has besides 7"):
        measure.envelope([facts_of([1, 2, 3]), facts_of([1, 2], row=[0, 7])])
    with pytest.raises(ValueError, match="it lacks none and has besides 2, 3, 4, 5, 6 and 3 more"):
        measure.envelope([facts_of([1, 2]), facts_of(range(10))])
    with pytest.raises(ValueError, match="more than once: 3"):
        measure.envelope([facts_of([1, 2], row=[3, 3])])
    with pytest.raises(ValueError, match="no attacks"):
        measure.envelope([])
    with pytest.raises(ValueError, match="unit='channel'"):
        measure.envelope([facts_of([1])], "channel")


def test_optimality_by_hand():
    # ε = 6 and acc = 3/4. Trapezoid: A* = 2.25, A = 3, so 1 − 0.75/2.25. Steps: A* = 3, A = 4, so 1 − 1/1.5.
    best, worse = [0, 2, 4, 6], [0, 4, 6, INF]
    assert measure.local_optimality(worse, best) == pytest.approx(2 / 3)
    assert measure.local_optimality(worse, best, "step") == pytest.approx(1 / 3)
    assert measure.local_optimality([0, INF, INF, INF], best, "step") == pytest.approx(0)
    assert measure.global_optimality([1, 2 / 3]) == pytest.approx(5 / 6)


def test_the_trapezoid_rewards_a_missing_first_step():
    # The weakness of AttackBench's areas: [2, 2] is worse than [1, 2] and scores above 1. The exact area has no room.
    assert measure.local_optimality([2, 2], [1, 2]) > 1
    assert measure.local_optimality([2, 2], [1, 2], "step") == 0


@given(POOLS, st.sampled_from(["trapezoid", "step"]))
def test_the_envelope_itself_is_optimal(pool, rule):
    best = np.min(pool, axis=0)
    score = measure.local_optimality(best, best, rule)
    assert score == 1 or math.isnan(score)
    for l0 in pool:
        exact = measure.local_optimality(l0, best, "step")
        assert math.isnan(exact) or exact <= 1 + 1e-9


@pytest.mark.parametrize("best", [[0, 0], [INF, INF], [5, 5], [0, INF]])
def test_no_optimality_where_nothing_tells_attacks_apart(best):
    assert math.isnan(measure.local_optimality(best, best, "step"))


def test_optimality_of_cells():
    cells = [
        (cell("a"), facts_of([0, 2, 4, 6])),
        (cell("b"), facts_of([INF, 6, 4, 0], row=[3, 2, 1, 0])),
        (cell("c", budget=24), facts_of([0, 2, 4, 6])),
    ]
    scores = measure.optimality(cells)
    assert scores == {"a": 1, "b": pytest.approx(2 / 3)}
    assert measure.optimality(cells, "step")["b"] == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match=r"differ in data_hash.*d: cells a; e: cells b"):
        measure.optimality([cells[0], (cell("b", data_hash="e"), cells[1][1])])
    with pytest.raises(ValueError, match="no attacks"):
        measure.optimality([])


def test_bad_optimality_is_named():
    with pytest.raises(ValueError, match="sample 1 has l0 1, the best of the pool is 2"):
        measure.local_optimality([1, 1], [1, 2])
    with pytest.raises(ValueError, match="2 samples against 1"):
        measure.local_optimality([1, 1], [1])
    with pytest.raises(ValueError, match="rule='simpson'"):
        measure.local_optimality([1], [1], "simpson")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"shape \(0,\)"):
        measure.global_optimality([])


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    # Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_against_printed_values(successes, n, low, high):
    assert measure.wilson(successes, n) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_wilson_inverts_the_score_test(case, level):
    successes, n = case
    low, high = measure.wilson(successes, n, level)
    assert 0 <= low <= successes / n <= high <= 1
    assert measure.wilson(n - successes, n, level) == pytest.approx((1 - high, 1 - low))
    z = NormalDist().inv_cdf((1 + level) / 2)
    for end in {low, high} - {0.0, 1.0}:
        assert (successes / n - end) ** 2 == pytest.approx(z * z * end * (1 - end) / n, abs=1e-9)


def test_bootstrap_median_has_the_bootstrap_distribution():
    for l0 in ([1, 2, 4], [1, 2, 4, INF], [3, 5]):
        medians = [measure.median(sample) for sample in itertools.product(l0, repeat=len(l0))]
        ordered = sorted(medians)
        for level in (0.3, 0.5, 0.8, 0.95):
            got = measure.bootstrap_median(l0, level, resamples=40_000)
            for end, tail in zip(got, ((1 - level) / 2, (1 + level) / 2), strict=True):
                # The end lies where all resamples, counted out, have their quantile, up to the noise of drawing.
                below = sum(value < end for value in ordered) / len(ordered)
                upto = sum(value <= end for value in ordered) / len(ordered)
                assert below - 0.01 <= tail <= upto + 0.01


@given(L0, st.integers(0, 5))
@settings(max_examples=50)
def test_bootstrap_median_is_deterministic_and_ordered(l0, seed):
    low, high = measure.bootstrap_median(l0, 0.9, seed, 500)
    assert (low, high) == measure.bootstrap_median(list(reversed(l0)), 0.9, seed, 500)
    assert min(l0) <= low <= high <= max(l0)


def test_bootstrap_median_of_one_value_and_of_failures():
    assert measure.bootstrap_median([7]) == (7, 7)
    assert measure.bootstrap_median([INF] * 4) == (INF, INF)
    low, high = measure.bootstrap_median([1] * 50 + [INF] * 50)
    assert (low, high) == (1, INF)


def test_paired_bootstrap_finds_a_shift_and_only_then():
    rng = np.random.default_rng(3)
    a = rng.integers(5, 60, 400)
    noise = rng.integers(-2, 3, 400)
    low, high = measure.paired_bootstrap(a, a + noise)
    assert low < 0 < high
    low, high = measure.paired_bootstrap(a + 1, a + noise)
    assert 0 < low < 1 < high + 0.2
    mean, half = (1 - noise).mean(), 1.96 * noise.std() / 20
    assert (low, high) == pytest.approx((mean - half, mean + half), abs=0.02)


def test_paired_bootstrap_matches_plain_resampling(monkeypatch):
    a, b = np.array([1.5, 2, 7, 4, 4]), np.array([1, 3.25, 2, 4, 9])
    places = np.random.default_rng(0).integers(0, 5, (200_000, 5))
    wanted = np.quantile((a - b)[places].mean(1), [0.1, 0.9])
    assert measure.paired_bootstrap(a, b, 0.8, resamples=50_000) == pytest.approx(tuple(wanted), abs=0.1)
    whole = measure.paired_bootstrap(a, b, 0.8, resamples=1000)
    monkeypatch.setattr(measure, "DRAWS", 7)  # a resample or so at a time
    assert measure.paired_bootstrap(a, b, 0.8, resamples=1000) == whole


def test_paired_bootstrap_with_failures():
    assert measure.paired_bootstrap([1, INF], [1, INF]) == (0, 0)
    assert measure.paired_bootstrap([INF] * 5, [1] * 5) == (INF, INF)
    assert measure.paired_bootstrap([1] * 5, [INF] * 5) == (-INF, -INF)
    assert measure.paired_bootstrap([INF] * 5, [1] * 5, cap=11) == (10, 10)
    low, high = measure.paired_bootstrap([1] * 20 + [INF], [1] * 21)
    assert (low, high) == (0, INF)
    with pytest.raises(ValueError, match="give a cap"):
        measure.paired_bootstrap([1, INF], [INF, 1])


def test_bad_intervals_are_named():
    for successes, n in ((3, 2), (-1, 2), (0, 0)):
        with pytest.raises(ValueError, match=f"{successes} successes of {n}"):
            measure.wilson(successes, n)
    for level in (0, 1, 95):
        with pytest.raises(ValueError, match=f"level={level}"):
            measure.wilson(1, 2, level)
        with pytest.raises(ValueError, match=f"level={level}"):
            measure.bootstrap_median([1], level)
        with pytest.raises(ValueError, match=f"level={level}"):
            measure.paired_bootstrap([1], [1], level)
    with pytest.raises(ValueError, match="resamples=0"):
        measure.bootstrap_median([1], resamples=0)
    with pytest.raises(ValueError, match="resamples=0"):
        measure.paired_bootstrap([1], [1], resamples=0)


def test_summary_of_a_minimum_norm_run():
    facts = facts_of(
        [0, 12, 30, INF],
        label=[1, 1, 1, 1],
        clean_prediction=[2, 1, 1, 1],
        outcome=[0, 1, 1, 3],
        forwards=[1, 100, 101, 102],
        backwards=[0, 100, 98, 98],
        seconds=[0, 1, 1, 2],
    )
    figures = measure.summary(cell(rows=5), facts)
    assert figures == {
        "samples": 4,
        "missing": 1,
        "clean_accuracy": 0.75,
        "already_wrong": 0.25,
        "asr_10": 0.25,
        "asr_24": 0.5,
        "asr_50": 0.75,
        "asr_inf": 0.75,
        "median_l0": 21,
        "mean_l0": INF,
        "mean_l0_found": 14,
        "forwards": 76,
        "backwards": 74,
        "kqueries": 0.15,
        "seconds": 1,
        "non_finite": 0.25,
        "unverified": 0,
        "no_start": 0,
    }
    assert measure.summary(cell(unit="pixel"), facts)["median_l0"] == 42
    assert measure.summary(cell(), facts_of([INF]))["mean_l0_found"] is None


def test_summary_with_intervals():
    facts = facts_of([0, 12, 30, INF])
    figures = measure.summary(cell(), facts, ks=(24,), level=0.9)
    assert (figures["asr_24_low"], figures["asr_24_high"]) == measure.wilson(2, 4, 0.9)
    assert (figures["median_l0_low"], figures["median_l0_high"]) == measure.bootstrap_median([0, 12, 30, INF], 0.9)
    budgeted = measure.summary(cell(budget=24), facts, level=0.9)
    assert budgeted["asr_24_low"] == figures["asr_24_low"]
    assert budgeted["asr_50_low"] is None
    assert budgeted["median_l0_low"] is None


def test_a_budget_tells_its_own_rate_and_nothing_else():
    figures = measure.summary(cell(budget=24), facts_of([0, 12, 30, INF], forwards=[1, 2, 3, 2]))
    assert figures["asr_24"] == 0.5
    for name in ("asr_10", "asr_50", "asr_inf", "median_l0", "mean_l0", "mean_l0_found"):
        assert figures[name] is None, name
    assert figures["forwards"] == 2
    assert measure.summary(cell(budget=100), facts_of([0, 99, 101]))["asr_100"] == pytest.approx(2 / 3)


def test_no_summary_of_nothing():
    with pytest.raises(ValueError, match=r"cell a \(sigma-zero on M1\) has no samples"):
        measure.summary(cell(), Facts.empty())


def test_table_has_the_same_headings_in_all_rows():
    cells = ((cell(key, budget=budget), facts_of([0, 12, 30, INF])) for key, budget in (("a", None), ("b", 100)))
    free, budgeted = measure.table(cells)
    assert list(free) == list(budgeted)
    assert [name for name in free if name.startswith("asr")] == ["asr_10", "asr_24", "asr_50", "asr_100", "asr_inf"]
    assert (free["cell"], free["attack"], free["asr_100"]) == ("a", "sigma-zero", 0.75)
    assert (budgeted["budget"], budgeted["asr_100"], budgeted["asr_50"]) == (100, 0.75, None)
    assert measure.table([]) == []


@pytest.mark.parametrize(
    "other",
    [
        {"version": 2},
        {"precision": "bf16", "attack": "fmn"},
        {"unit": "pixel", "attack": "fmn"},
        {"data_hash": "e", "model": "M2", "attack": "fmn"},
        {"model_sha256": "n", "attack": "fmn"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_mixtures_are_refused_by_name(other):
    name = next(iter(other))
    cells = [(cell("key-a"), facts_of([1])), (cell("key-b", **other), facts_of([1]))]
    with pytest.raises(ValueError, match=rf"more than one {name} .*key-a.*key-b.*mix=True"):
        measure.table(cells)
    assert len(measure.table(cells, mix=True)) == 2


def test_what_a_table_may_hold():
    first = cell("a")
    others = [
        replace(first, key="b", attack="fmn", version=7),
        replace(first, key="c", model="M2", model_sha256="n"),
        replace(first, key="d", dataset="cifar10", data_hash="e", model="C1", model_sha256="o"),
        replace(first, key="e", steps=1000, budget=24, goal="targeted", seed=1),
    ]
    assert len(measure.table([(info, facts_of([1])) for info in (first, *others)])) == 5
