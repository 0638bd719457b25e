"""Figures against their definitions, written out sample by sample."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sigmazero.core import metrics
from sigmazero.core.metrics import Outcome
from sigmazero.report import runs

INF = math.inf
L0 = st.lists(st.one_of(st.integers(0, 30), st.just(INF)), min_size=1, max_size=30)


@pytest.mark.parametrize("function", [metrics.asr, metrics.median, metrics.mean, runs.curve])
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
        metrics.asr([1], k)


@given(L0, st.one_of(st.integers(0, 31), st.just(INF)))
def test_what_is_not_fooled_is_robust(l0, k):
    assert metrics.robust(l0, k) == sum(not (value <= k and value < INF) for value in l0) / len(l0)


def samples(l0, **more) -> metrics.Samples:
    columns = {name: np.zeros(len(l0), np.int64) for name in ("forwards", "backwards", "clean_prediction")}
    outcome = np.where(np.isfinite(l0), Outcome.FOUND, Outcome.NOT_FOUND)
    return metrics.Samples(np.array(l0, float), outcome, seconds=np.zeros(len(l0)), **(columns | more))


def test_a_figure_at_k():
    rate = metrics.METRICS["asr"]
    at = rate.at(24)
    assert (at.name, at.title, at.heading) == ("asr_24", "ASR at 24", "ASR 24")
    assert rate.at(INF).heading == "ASR ∞"
    assert at.value(samples([3, 30, INF])) == 1 / 3
    assert [at.known(budget) for budget in (None, 24, 50)] == [True, True, False]
    median = metrics.METRICS["median_l0"]
    assert median.at(24) is median
    assert [median.known(budget) for budget in (None, 24)] == [True, False]
    assert metrics.METRICS["forwards"].known(24)


def test_what_cannot_be_told_is_none_and_nothing_gives_no_number():
    clean = metrics.METRICS["clean_accuracy"]
    assert clean.value(samples([1, 2])) is None
    assert clean.value(samples([1, 2], label=np.array([0, 1]))) == 0.5
    assert all(math.isnan(each.value(samples([])) or 0) for each in metrics.asked("store", (10,)))
