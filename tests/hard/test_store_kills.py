"""A writer is killed at random moments: no acknowledged batch is lost, and none is half there.

Two kills here, forty each night.
"""

import os
import random
import time

import numpy as np
import pytest

from sigmazero.store.facts import Facts
from sigmazero.store.store import Store
from tests.helpers.trial import NIGHTLY
from tests.store.making import cell, made, same

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

KILLS, SIZE = 40 if NIGHTLY else 2, 16
ROWS = 400 * SIZE


def append(path, out):
    """Append what is missing, and say each batch once it is acknowledged."""
    with Store(path, write=True) as store:
        store.register([cell(rows=ROWS)])
        run, done = store.begin({}), store.stored("k")
        for start in range(0, ROWS, SIZE):
            if not done[start]:
                store.append("k", start, made(SIZE, seed=start), run=run)
                out.send(start)


def test_no_acknowledged_batch_is_lost(tmp_path, children):
    path, draw, said, kills = tmp_path / "s.db", random.Random(os.environ.get("SIGMAZERO_SEED", "0")), set[int](), 0
    while kills < KILLS:
        process, pipe = children.start(append, path)
        heard, last = 0, draw.randint(1, 6)
        try:
            while True:
                said.add(pipe.recv())
                heard += 1
                if heard == last:
                    time.sleep(draw.random() * 0.004)  # so that the kill comes at any moment of a transaction
                    process.kill()
        except EOFError:
            process.join()
        kills += process.exitcode != 0
        with Store(path) as store:
            held = store.stored("k").reshape(-1, SIZE)
            assert (held.all(1) == held.any(1)).all(), "a batch is half there"
            assert held[[start // SIZE for start in said]].all(), "an acknowledged batch is lost"
            assert store.damage() == []
        if process.exitcode == 0:
            break
    with Store(path) as store:
        starts = np.flatnonzero(held.all(1)) * SIZE
        same(store.facts("k"), Facts.join([made(SIZE, seed=int(start)) for start in starts]))
    assert kills == KILLS
