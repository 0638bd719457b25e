"""Limits, repetitions and the cache of models that are asked from afar, with a clock that only the tests move."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.svm import SVC

import sigmazero as sz
from sigmazero.models import OutOfQueries, ScorerFailed
from sigmazero.models.wrapping import limits

W = np.random.default_rng(1).normal(size=(6, 3))
X = torch.rand(8, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.from_numpy((X.numpy() @ W).argmax(1))
ATTACK = sz.get("sparse-rs", steps=12)


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """Let time pass by waiting alone, and note each wait."""
    noted: list[float] = []
    still = SimpleNamespace(monotonic=lambda: sum(noted), sleep=noted.append)
    monkeypatch.setattr(limits, "time", still)
    return noted


class Service:
    """Scores from afar: notes how many rows each call had, and fails at the calls it is told to."""

    def __init__(self, fails=()):
        self.calls, self.fails, self.count = [], set(fails), 0

    def __call__(self, x: np.ndarray):
        self.count += 1
        if self.count in self.fails:
            raise ConnectionError("the line is dead\nfor now")
        self.calls.append(len(x))
        return x @ W


def test_rows_are_cut_into_calls_and_counted():
    service = Service()
    model = sz.limit(service, max_batch=3)
    assert torch.allclose(model(X), X @ torch.from_numpy(W))
    assert service.calls == [3, 3, 2]
    assert str(model.queries) == "8 asked, 0 cached, 3 calls, 0 retried"


def test_calls_wait_for_their_turn(waits):
    model = sz.limit(Service(), max_batch=2, rate=4)
    model(X)
    assert waits == [0.25] * 3
    waits.append(10)
    model(X[:2])
    assert waits == [*[0.25] * 3, 10]


def test_failed_calls_are_made_again(waits):
    model = sz.limit(Service(fails={2, 3}), max_batch=4, retries=2, wait=0.5)
    assert torch.allclose(model(X), X @ torch.from_numpy(W))
    assert waits == [0.5, 1.0]
    assert (model.queries.asked, model.queries.calls, model.queries.retried) == (8, 2, 2)
    with pytest.raises(ScorerFailed, match=r"1 calls .*retries=0 \(ConnectionError: the line is dead\)$"):
        sz.limit(Service(fails={1}))(X)
    with pytest.raises(ValueError, match="matmul"):  # a mistake is shown as it is
        sz.limit(Service())(X[:, :4])
    with pytest.raises(ScorerFailed, match="3 calls"):
        sz.limit(Service(fails={1, 2, 3}), retries=2)(X)


def test_the_cache_asks_once():
    service = Service()
    model = sz.limit(service, cache=True)
    assert torch.equal(model(torch.cat([X[:3], X[:3]]))[:3], model(X[:3]))
    model(X[:4])
    assert service.calls == [3, 1]
    assert (model.queries.asked, model.queries.cached) == (4, 9)


def test_questions_to_predict_count():
    """An estimator whose `predict` goes its own way is asked twice about each row."""
    forest: Any = sz.wrap(SVC().fit(np.eye(6).repeat(3, 0), np.arange(6).repeat(3)))
    model = sz.limit(forest, max_queries=20)
    model(X)
    assert model.queries.asked == forest.asked == 16
    with pytest.raises(OutOfQueries):
        model(X[:3])


def test_a_run_keeps_the_rows_that_are_done():
    whole = ATTACK.run(sz.limit(Service()), X, Y, budget=2, batch_size=2)
    service = Service(range(21, 99))
    model = sz.limit(service, retries=1)
    with pytest.warns(RuntimeWarning, match=r"\d of 8 rows are not done: .*2 calls"):
        result = ATTACK.run(model, X, Y, budget=2, batch_size=2)
    stopped = result.outcome == sz.Outcome.STOPPED
    assert 0 < int(stopped.sum()) < len(X)
    assert torch.equal(result.x_adv[~stopped], whole.x_adv[~stopped])
    assert not bool(result.success[stopped].any())
    assert sum(service.calls) == model.queries.asked


def test_a_limit_that_ends_keeps_what_was_found():
    """With few queries left fewer rows are searched at a time, so most of what was paid for is kept."""
    attack = sz.get("query-swap", queries=40)
    model = sz.limit(Service(), max_queries=100)
    with pytest.warns(RuntimeWarning, match=r"\d of 8 rows are not done: max_queries=100.* allow more"):
        result = attack.run(model, X, Y)
    done = result.outcome != sz.Outcome.STOPPED
    assert done.sum() >= 2
    assert result.forwards[done].sum() >= 40


def test_a_benchmark_keeps_the_rows_that_are_done_and_goes_on(tmp_path):
    def evaluated(store, **terms):
        model = sz.limit(Service(), max_batch=2, **terms)  # as many rows are attacked at once, and may be lost
        return sz.evaluate(model, (X, Y), [ATTACK], store=tmp_path / store, budgets=[2]), model.queries

    whole, queries = evaluated("whole.db")
    with pytest.warns(RuntimeWarning, match=f"max_queries={queries.asked - 20}"):
        first, stopped = evaluated("part.db", max_queries=queries.asked - 20)
    assert stopped.asked <= queries.asked - 20
    assert 0 < len(first.facts(first.keys[0]).l0) < len(X)
    again, _ = evaluated("part.db")
    assert again.keys == first.keys == whole.keys
    assert again.facts(again.keys[0]).l0.tolist() == whole.facts(whole.keys[0]).l0.tolist()


@pytest.mark.parametrize(
    "wrong",
    [{"max_batch": 0}, {"max_queries": -1}, {"retries": 1.5}, {"rate": 0}, {"wait": -1.0}, {"ability": "gradients"}],
)
def test_limits_that_make_no_sense(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}="):
        sz.limit(Service(), **wrong)
