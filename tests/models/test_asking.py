"""Limits, repetitions and the cache of models that are asked from afar, with a clock that only the tests move."""

from typing import Any

import numpy as np
import pytest
import torch

import sigmazero as sz
from sigmazero.models import OutOfQueries, ScorerFailed
from sigmazero.models.any.asking import Clock

W = np.random.default_rng(1).normal(size=(6, 3))
X = torch.rand(8, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.from_numpy((X.numpy() @ W).argmax(1))


class Still(Clock):
    """Time passes by waiting alone, and each wait is noted."""

    def __init__(self):
        self.time, self.waits = 0.0, []

    def now(self):
        return self.time

    def sleep(self, seconds):
        self.waits.append(round(seconds, 6))
        self.time += seconds


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


def asked(service, **terms):
    model: Any = sz.wrap(service, takes="numpy", **terms)
    model.asking.clock = Still()
    return model


def test_rows_are_cut_into_calls_and_counted():
    service = Service()
    model = asked(service, max_batch=3)
    assert torch.allclose(model(X), X @ torch.from_numpy(W))
    assert service.calls == [3, 3, 2]
    assert str(model.queries) == "8 asked, 0 cached, 3 calls, 0 retried"


def test_calls_wait_for_their_turn():
    model = asked(Service(), max_batch=2, rate=4)
    model(X)
    assert model.asking.clock.waits == [0.25] * 3
    model.asking.clock.time += 10
    model(X[:2])
    assert model.asking.clock.waits == [0.25] * 3


def test_failed_calls_are_made_again():
    service = Service(fails={2, 3})
    model = asked(service, max_batch=4, retries=2, wait=0.5)
    assert torch.allclose(model(X), X @ torch.from_numpy(W))
    assert model.asking.clock.waits == [0.5, 1.0]
    assert (model.queries.asked, model.queries.calls, model.queries.retried) == (8, 2, 2)
    with pytest.raises(ScorerFailed, match=r"failed once, and retries=0 \(ConnectionError: the line is dead\)$"):
        asked(Service(fails={1}))(X)
    with pytest.raises(ValueError, match="matmul"):  # a mistake is shown as it is
        asked(Service())(X[:, :4])
    with pytest.raises(ScorerFailed, match=r"failed 3 times in a row \(ConnectionError: the line is dead\)$"):
        asked(Service(fails={1, 2, 3}), retries=2)(X)


def test_the_cache_asks_once():
    service = Service()
    model = asked(service, cache=True)
    twice = torch.cat([X[:3], X[:3]])
    assert torch.equal(model(twice)[:3], model(X[:3]))
    assert service.calls == [3]
    assert (model.queries.asked, model.queries.cached) == (3, 6)
    model(X[:4])
    assert service.calls == [3, 1]


def test_max_queries_is_never_exceeded():
    service = Service()
    model = asked(service, max_batch=3, max_queries=7)
    with pytest.raises(OutOfQueries, match="max_queries=7: 6 were asked, and 2 more are not allowed"):
        model(X)
    assert sum(service.calls) == model.queries.asked == 6


ATTACK = sz.get("sparse-rs", steps=12)


@pytest.mark.parametrize(
    ("terms", "fails", "said"),
    [
        ({"max_queries": 60}, (), "max_queries=60"),
        ({"retries": 1}, range(21, 99), "failed 2 times in a row"),
        ({}, range(21, 99), "failed once"),
    ],
)
def test_a_run_keeps_the_rows_that_are_done(terms, fails, said):
    whole = ATTACK.run(asked(Service()), X, Y, budget=2, batch_size=2)
    service = Service(fails)
    model = asked(service, **terms)
    with pytest.warns(RuntimeWarning, match=rf"\d of 8 rows are not done: .*{said}"):
        result = ATTACK.run(model, X, Y, budget=2, batch_size=2)
    stopped = result.outcome == sz.Outcome.STOPPED
    assert 0 < int(stopped.sum()) < len(X)
    assert torch.equal(result.x_adv[~stopped], whole.x_adv[~stopped])
    assert torch.equal(result.forwards[~stopped], whole.forwards[~stopped])
    assert bool(result.l0[stopped].isinf().all())
    assert f"{int(stopped.sum())} samples are not done" in str(result)
    assert not bool(result.success[stopped].any())
    assert sum(service.calls) == model.queries.asked


def test_queries_are_those_that_the_result_counts():
    model = asked(Service())
    result = ATTACK.run(model, X, Y, budget=2, batch_size=3)
    assert model.queries.asked == int(result.forwards.sum())


def test_a_benchmark_keeps_the_rows_that_are_done_and_goes_on(tmp_path):
    def evaluated(store, **terms):
        model = asked(Service(), max_batch=2, **terms)  # as many rows are attacked at once, and may be lost
        return sz.evaluate(model, (X, Y), [ATTACK], store=tmp_path / store, budgets=[2]), model.queries

    whole, queries = evaluated("whole.db")
    most = queries.asked - 20
    with pytest.warns(RuntimeWarning, match=f"max_queries={most}"):
        first, stopped = evaluated("part.db", max_queries=most)
    assert stopped.asked <= most
    assert 0 < len(first.facts(first.keys[0]).l0) < len(X)
    again, _ = evaluated("part.db")
    assert again.keys == first.keys == whole.keys
    assert again.facts(again.keys[0]).l0.tolist() == whole.facts(whole.keys[0]).l0.tolist()


@pytest.mark.parametrize(
    "wrong", [{"max_batch": 0}, {"max_queries": -1}, {"retries": 1.5}, {"rate": 0}, {"wait": -1.0}]
)
def test_terms_that_nobody_can_be_asked_on(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}="):
        sz.wrap(lambda x: x @ W, **wrong)
