"""Shards divide a plan between machines that know nothing of each other: every row once, at like cost."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from benchmarks.store import made_up
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import sigmazero as sz
from sigmazero.bench import cost, shards
from sigmazero.bench.cells import Cell, expand
from sigmazero.bench.plan import DataSpec, ModelSpec, Question, parse_plan
from sigmazero.bench.shards import Shard
from sigmazero.models import zoo
from sigmazero.store import CellInfo, Store
from tests.cli.conftest import sigmazero  # noqa: F401
from tests.plans import PLAN, trusting

ASKED = Question(ModelSpec("m", "m"), DataSpec("d", "d"), "sigma-zero", sz.get("sigma-zero"))
# Microseconds of a forward and a backward pass on an H200 in TF32, at the larger batch (docs/speed.md).
MEASURED = {"M1": 1.93, "C3": 21.6, "C1": 163.0, "I1": 117.0}


def cell(number: int, rows: int, batch_size: int, model: str = "m") -> Cell:
    common = {"dataset": "d", "parameters": {}, "version": 1, "steps": 1, "unit": "feature", "goal": "untargeted"}
    more = {"budget": None, "seed": 0, "precision": "fp32", "data_hash": "d", "attack": "a"}
    info = CellInfo(key=f"{number:064d}", model=model, rows=rows, model_sha256=model, **common, **more)  # type: ignore[arg-type]
    return Cell(info, replace(ASKED, batch_size=batch_size))


CELLS = st.lists(
    st.tuples(st.integers(0, 200), st.integers(1, 64), st.sampled_from("abc"), st.integers(1, 10**15)), max_size=8
)


@given(CELLS, st.integers(1, 20), st.randoms(use_true_random=False))
def test_every_row_is_in_one_shard_whatever_the_order(made, count, draw):
    cells = [cell(i, rows, size, model) for i, (rows, size, model, _) in enumerate(made)]
    costs = {c.info.key: price for c, (*_, price) in zip(cells, made, strict=True)}
    masks = [shards.mask(cells, Shard(i + 1, count), costs) for i in range(count)]
    for c in cells:
        assert (np.sum([mask[c.info.key] for mask in masks], axis=0) == 1).all()
        for mask in masks:  # batches stay whole
            starts = np.flatnonzero(np.diff(mask[c.info.key].astype(int))) + 1
            assert not (starts % c.question.batch_size).any()
    spent = [sum(int(mask[key].sum()) * costs[key] for key in mask) for mask in masks]
    largest = max((costs[c.info.key] * min(c.question.batch_size, c.info.rows) for c in cells), default=0)
    assert all(abs(part * count - sum(spent)) <= largest * count for part in spent)
    draw.shuffle(cells)
    again = shards.mask(cells, Shard(1, count), costs)
    assert all(np.array_equal(again[key], masks[0][key]) for key in costs)


def test_a_shard_has_few_models():
    cells = [cell(i, 100, 10, model) for i, model in enumerate("abcd" * 5)]
    costs = {c.info.key: 7 for c in cells}
    for number in range(1, 9):
        held = shards.mask(cells, Shard(number, 8), costs)
        assert len({c.info.model for c in cells if held[c.info.key].any()}) == 1


def test_a_cell_that_is_asked_under_two_names_is_one():
    one = cell(0, 10, 2)
    both = [one, replace(one, question=replace(one.question, batch_size=5)), cell(1, 10, 2)]
    for order in (both, both[::-1]):
        found = shards.mask(order, Shard(1, 2), {c.info.key: 1 for c in both})
        assert [int(mine.sum()) for mine in found.values()] == [10, 0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("5/4", "there is no part 5 of 4"),
        ("0/4", "no part 0 of 4"),
        ("x/y", "'x/y' is none"),
        ("1/0", "1 part or more"),
    ],
)
def test_wrong_shards_are_refused_in_one_line(sigmazero, folder, text, said):  # noqa: F811
    done = sigmazero("run", "plan.toml", "--trust-code", "--shard", text)
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (folder / "runs").exists()


def test_shards_store_their_own_rows_alone(sigmazero, folder):  # noqa: F811
    seen: dict[str, np.ndarray] = {}
    for number in range(1, 5):
        done = sigmazero("run", "plan.toml", "--trust-code", "--device", "cpu", "--shard", f"{number}/4")
        assert done.exit_code == 0, done.output
        path = f"runs/plan-part-{number}-of-4.db"
        with Store(path) as store:
            for info in store.cells():
                held = store.stored(info.key)
                assert held.any()
                assert not (seen.get(info.key, ~held & held) & held).any()
                seen[info.key] = seen.get(info.key, False) | held
                assert info.provenance["shard"] == f"{number}/4"
        assert "0 rows stored" in sigmazero("run", "plan.toml", "--trust-code", "--shard", f"{number}/4").stdout
    assert len(seen) == 6
    assert all(held.all() for held in seen.values())


def test_a_plan_of_which_something_is_missing_is_not_cut(sigmazero, folder, monkeypatch):  # noqa: F811
    monkeypatch.setenv("SIGMAZERO_HOME", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    (folder / "plan.toml").write_text(PLAN.replace('"net.py:other"', '"M1"'))
    done = sigmazero("run", "plan.toml", "--trust-code", "--shard", "1/2")
    assert done.exit_code == 2
    assert "a shard is cut from the whole plan, and M1 is missing here" in done.stderr


def test_estimates_come_near_to_what_was_measured():
    for code, micro in MEASURED.items():
        entry = zoo.entries()[code]
        with torch.device("meta"):
            counted = cost.multiply_adds(entry.build().eval(), entry.input_size)
        guess = 2 * cost.per_pass(counted, entry.input_size, "tf32") * cost.SECONDS * 1e6
        assert guess == pytest.approx(micro, rel=0.12), code


def test_models_that_cannot_be_counted_go_by_their_parameters():
    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x):
            return self.layer(x) if float(x.sum()) > 0 else -self.layer(x)

    assert cost.multiply_adds(nn.Linear(6, 3), (6,)) == 18
    assert cost.multiply_adds(Looks(), (6,)) == cost.PER_PARAMETER * 21


def test_costs_follow_queries_and_precision(folder):
    loader = trusting()
    cells, _ = expand(parse_plan(PLAN).questions, loader)
    found = {(c.info.model, c.info.attack): cost.estimate(cells, loader)[c.info.key] for c in cells}
    assert found["net.py:build", "sigma-zero"] == found["net.py:other", "fmn"]
    assert found["net.py:build", "vfga"] > found["net.py:build", "fmn"]
    by = {name: cost.queries(replace(ASKED, attack=sz.get(name, steps=1000))) for name in sz.ATTACKS}
    assert by["sigma-zero"] == by["fmn"] == 2002
    assert by["sparse-rs"] == 1002
    assert by["vfga"] == 902
    assert by["sigma-swap"] == sz.get("sigma-swap", steps=1000).limit
    assert cost.queries(replace(ASKED, budget=24)) < cost.queries(ASKED) / 2
    assert cost.per_pass(10**9, (3, 32, 32), "fp32") > 3 * cost.per_pass(10**9, (3, 32, 32), "tf32")


def test_measured_seconds_win_and_set_the_pace_of_the_others(folder):
    loader = trusting()
    cells, _ = expand(parse_plan(PLAN).questions, loader)
    costs = cost.estimate(cells, loader)
    first, second = cells[0].info, cells[1].info
    with Store("s.db", write=True) as store:
        store.register([first, second])
        assert cost.refine(costs, store)[first.key] == pytest.approx(costs[first.key] * cost.SECONDS)
        store.append(first.key, 0, made_up(4, 0), run=store.begin({}), seconds=8.0)
        found = cost.refine(costs, store)
    assert found[first.key] == 2.0
    assert found[second.key] == pytest.approx(2.0 * costs[second.key] / costs[first.key])
