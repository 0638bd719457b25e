"""Shards divide a plan between machines that know nothing of each other: every row once."""

import hashlib
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import sigmazero as sz
from sigmazero.bench.cells import Cell, Shard
from sigmazero.bench.plan import DataSpec, ModelSpec, Question
from sigmazero.store import CellInfo, Store
from tests.cli.conftest import sigmazero  # noqa: F401

ASKED = Question(ModelSpec("m", "m"), DataSpec("d", "d"), "sigma-zero", sz.get("sigma-zero"))


def cell(number: int, rows: int, batch_size: int) -> Cell:
    common = {"dataset": "d", "parameters": {}, "version": 1, "steps": 1, "unit": "feature", "goal": "untargeted"}
    more = {"budget": None, "seed": 0, "precision": "fp32", "data_hash": "d", "attack": "a", "model_sha256": "m"}
    key = hashlib.sha256(str(number).encode()).hexdigest()
    return Cell(CellInfo(key=key, model="m", rows=rows, **common, **more), replace(ASKED, batch_size=batch_size))


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 64)), max_size=8), st.integers(1, 20), st.integers(0, 7))
def test_every_row_is_in_one_shard_whatever_is_missing(made, count, missing):
    cells = [cell(i, rows, size) for i, (rows, size) in enumerate(made)]
    masks = [Shard(i + 1, count).rows(cells) for i in range(count)]
    for one in cells:
        assert (np.sum([mask[one.info.key] for mask in masks], axis=0) == 1).all()
        batches = [int(np.ceil(mask[one.info.key].sum() / one.question.batch_size)) for mask in masks]
        assert max(batches) - min(batches) <= 1
        for mask in masks:  # batches stay whole
            starts = np.flatnonzero(np.diff(mask[one.info.key].astype(int))) + 1
            assert not (starts % one.question.batch_size).any()
    fewer = [one for place, one in enumerate(cells) if place != missing][::-1]
    again = Shard(1, count).rows(fewer)
    assert all(np.array_equal(again[key], masks[0][key]) for key in again)


def test_shards_store_their_own_rows_alone(sigmazero, folder):  # noqa: F811
    seen: dict[str, np.ndarray] = {}
    for number in range(1, 4):
        done = sigmazero("run", "plan.toml", "--trust-code", "--device", "cpu", "--shard", f"{number}/3")
        assert done.exit_code == 0, done.output
        with Store(f"runs/plan-part-{number}-of-3.db") as store:
            for info in store.cells():
                own = store.stored(info.key)
                assert not (seen.get(info.key, ~own & own) & own).any()
                seen[info.key] = seen.get(info.key, False) | own
        assert "already done" in sigmazero("run", "plan.toml", "--trust-code", "--shard", f"{number}/3").stdout
    assert len(seen) == 6
    assert all(own.all() for own in seen.values())
