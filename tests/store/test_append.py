"""Rows in any order and with gaps, answers, and a process that is killed in the middle."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sigmazero.store import Facts, Store, StoreError
from tests.store.test_store import cell, fill, made, same


@given(data=st.data())
@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_rows_with_gaps_come_back_in_their_order(tmp_path, data):
    """Rows are dealt to batches at random, and some to none; the batches come in any order."""
    path = tmp_path / "s.db"
    path.unlink(missing_ok=True)
    dealt = np.array(data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=30)))
    every = made(len(dealt), seed=data.draw(st.integers(0, 99)))
    order = data.draw(st.permutations([batch for batch in range(1, 5) if (dealt == batch).any()]))
    with Store(path, write=True) as store:
        store.register([cell(rows=len(dealt))])
        for batch in order:
            places = np.flatnonzero(dealt == batch)
            store.append("k", data.draw(st.sampled_from([places, places.tolist()])), every.take(places), run=1)
        held = np.flatnonzero(np.isin(dealt, order))
        assert store.stored("k").tolist() == (dealt > 0).tolist()
        assert store.positions("k").tolist() == held.tolist()
        same(store.facts("k"), every.take(held))
        assert np.array_equal(store.facts("k", perturbations=False).l0, every.l0[held])
        for place in held[:3].tolist():
            with pytest.raises(StoreError, match=f"row {place} of cell k is stored already"):
                store.append("k", place, every.take(slice(0, 1)), run=1)
        if (free := np.flatnonzero(dealt == 0)).size:  # a gap may be filled, and nothing beside it
            store.append("k", free, every.take(free), run=1)
            same(store.facts("k"), every)
        assert store.audit() == []


def test_positions_that_cannot_be_meant_are_refused(tmp_path):
    some = made(3)
    with Store(tmp_path / "s.db", write=True) as store:
        store.register([cell(rows=10)])
        cases: list[tuple[Any, str]] = [
            ([0, 1], "facts of 3 rows need as many positions"),
            ([0.0, 1.0, 2.0], "need as many positions"),
            ([3, 2, 5], "must rise: 3 is followed by 2"),
            ([3, 3, 5], "must rise: 3 is followed by 3"),
            *((places, "has 10 rows") for places in ([-1, 2, 3], [7, 8, 10], 8, -1)),
        ]
        for places, said in cases:
            with pytest.raises((ValueError, StoreError), match=said):
                store.append("k", places, some, run=1)
        store.append("k", 4, Facts.empty(), run=1)
        assert not store.stored("k").any()


def test_answers_are_kept_and_replaced(tmp_path):
    with Store(tmp_path / "s.db", write=True) as store:
        store.register([cell(), cell("other")])
        assert store.answers("k") is None
        for logits in (torch.rand(3, 2), torch.tensor([[torch.nan, 1 / 3], [torch.inf, -0.0]], dtype=torch.float64)):
            store.keep_answers("k", logits)
            kept = store.answers("k")
            assert kept is not None
            assert kept.numpy().tobytes() == logits.double().numpy().tobytes()
        assert store.answers("other") is None
        assert store.audit() == []


def test_killed_at_any_point_of_a_transaction_a_batch_is_there_or_not(tmp_path, children):
    """The fifth transaction is the second batch: the first three note the writer, the cell and the run."""
    for point, batches in {"begin": 1, "commit": 1, "committed": 2}.items():
        assert children.killed(f"store.{point}:5", fill, tmp_path / f"{point}.db")
        with Store(tmp_path / f"{point}.db") as store:
            same(store.facts("k"), Facts.join([made(8, seed=i) for i in range(batches)]))
            assert store.audit() == []


def test_batches_of_one_transaction_are_written_together_and_read_before_that(tmp_path):
    """Of two cells in turn; what is read between them is all there, and their number costs no statement but inserts."""

    def fill_both(store: Store, rows: range) -> list[str]:
        said: list[str] = []
        store._base.set_trace_callback(said.append)
        with store.together():
            for place in rows:
                store.append("k", place, made(1, seed=place), run=1)
                store.append("other", place, made(1, seed=1000 + place), run=1)
        store._base.set_trace_callback(None)
        return [line.split()[0] for line in said if not line.startswith("INSERT")]

    def fail_after_one(store: Store) -> None:
        with store.together():
            store.append("k", 46, made(1), run=1)
            store.append("none", 0, made(1), run=1)

    with Store(tmp_path / "s.db", write=True) as store:
        store.register([cell(), cell("other")])
        store.begin({})
        fill_both(store, range(1))  # here the store reads what it has of the cells
        assert fill_both(store, range(1, 2)) == fill_both(store, range(2, 42))
        with store.together():
            store.append("k", 42, made(1, seed=42), run=1)
            same(store.facts("k"), Facts.join([made(1, seed=place) for place in range(43)]))
            store.append("k", 43, made(1, seed=43), run=1)
            assert store.audit() == []
            store.append("k", 44, made(1, seed=44), run=1)
            store.retry("k")
            store.append("k", 45, made(1, seed=45), run=1)
        same(store.facts("k"), Facts.join([made(1, seed=place) for place in range(46)]))
        assert [one.done for one in store.status()] == [46, 42]
        with pytest.raises(KeyError, match="no cell 'none'"):
            fail_after_one(store)
        assert len(store.facts("k")) == 46
        store.append("k", 46, made(1, seed=46), run=1)
        assert store.audit() == []
