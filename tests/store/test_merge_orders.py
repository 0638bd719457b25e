"""Merging is idempotent, and neither order nor steps matter: over random stores that overlap."""

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sigmazero.store import Store
from sigmazero.store.merge import merge
from tests.store.test_merge import KEYS, ROWS, TRUTH, dump, fill

pytestmark = pytest.mark.slow

BATCHES = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.sets(st.integers(0, ROWS - 1), min_size=1).map(sorted),
        st.sampled_from(["a", "bb"]),
        st.sampled_from([0.1, 0.25, 0.7]),
    ),
    max_size=5,
)
PARTS = st.lists(st.tuples(BATCHES, st.sampled_from([None, "it broke", "it failed"])), min_size=3, max_size=3)


@given(PARTS)
@settings(max_examples=20)
def test_any_order_and_any_steps_give_the_same_store(parts):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [fill(folder / f"{i}.db", *part) for i, part in enumerate(parts)]
        count = itertools.count()

        def merged(*some: Path) -> Path:
            out = folder / f"out-{next(count)}.db"
            merge(some, out)
            return out

        a, b, c = paths
        whole = dump(merged(a, b, c))
        assert dump(merged(c, b, a)) == dump(merged(b, a, c, b)) == whole
        assert dump(merged(merged(a, b), c)) == dump(merged(a, merged(c, b))) == whole
        assert dump(merged(merged(a, b, c))) == whole
        onto = merged(a, c)
        merge([b], onto)  # what is there stays
        assert dump(onto) == whole
        with Store(onto) as store:
            assert store.audit() == []
            held = {key: np.zeros(ROWS, np.bool_) for key in KEYS}
            for path in paths:
                with Store(path) as part:
                    for key in KEYS:
                        held[key] |= part.stored(key)
            for key in KEYS:
                assert np.array_equal(store.stored(key), held[key])
                facts = store.facts(key)
                for column in ("row", "l0", "margin", "outcome"):
                    assert np.array_equal(getattr(facts, column), getattr(TRUTH[key], column)[held[key]])
