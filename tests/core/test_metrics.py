"""Figures at a number of changes, and those that are not known."""

import math

import numpy as np
import pytest

from sigmazero.core import metrics
from sigmazero.core.metrics import Outcome

INF = math.inf


def samples(l0, **more) -> metrics.Samples:
    columns = {name: np.zeros(len(l0), np.int64) for name in ("forwards", "backwards", "clean_prediction")}
    outcome = np.where(np.isfinite(l0), Outcome.FOUND, Outcome.NOT_FOUND)
    return metrics.Samples(np.array(l0, float), outcome, seconds=np.zeros(len(l0)), **(columns | more))


def test_a_figure_at_k():
    at = metrics.METRICS["asr"].at(24)
    assert (at.name, at.title, at.heading) == ("asr_24", "ASR at 24", "ASR 24")
    assert at.value(samples([3, 30, INF])) == 1 / 3
    assert [at.known(budget) for budget in (None, 24, 50)] == [True, True, False]
    assert metrics.robust([3, 30, INF], 24) == 2 / 3
    median = metrics.METRICS["median_l0"]
    assert median.at(24) is median
    assert [median.known(budget) for budget in (None, 24)] == [True, False]
    for k in (-1, math.nan):
        with pytest.raises(ValueError, match=f"k={k}"):
            metrics.asr([1], k)


def test_an_unknown_figure_is_none_and_no_samples_have_none():
    clean = metrics.METRICS["clean_accuracy"]
    assert clean.value(samples([1, 2])) is None
    assert clean.value(samples([1, 2], label=np.array([0, 1]))) == 0.5
    assert all(math.isnan(each.value(samples([])) or 0) for each in metrics.asked("store", (10,)))
