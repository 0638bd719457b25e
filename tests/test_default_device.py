"""With a default device other than that of the inputs (torch.set_default_device), all is found as without one.

The default here is "meta", where no tensor has values: whatever is made there by oversight cannot be used. Single
attacks are in the contract.
"""

import numpy as np
import pytest
import torch

import sigmazero as sz
from sigmazero.models.doctor import examine
from tests.helpers.networks import linear_problem
from tests.plans import run as run_plan

pytestmark = pytest.mark.slow

PLAN = """
steps = 5
[data.digits]
source = "mnist-5k"
rows = "0:2"
[attacks.z]
attack = "sigma-zero"
trace = true
[[grid]]
models = ["demo"]
data = ["digits"]
attacks = ["z"]
"""
MODEL, X, Y = linear_problem((3, 4, 4), 6, seed=4)


@pytest.fixture
def elsewhere():
    """Switch to another default device; the one before comes back."""

    def switch() -> None:
        torch.set_default_device("meta")

    yield switch
    torch.set_default_device(None)


def test_a_benchmark_finds_the_same(tmp_path, elsewhere):
    def run(name: str) -> list[np.ndarray]:
        store = {"store": tmp_path / name, "steps": 8, "batch_size": 4}
        done = sz.evaluate(MODEL, (X, Y), ["sigma-zero", "vfga"], **store)
        aimed = sz.evaluate(MODEL, (X, Y), ["sigma-zero"], target="random", **store)
        assert not done.failed | aimed.failed
        assert (aimed.verify().rows, aimed.verify().disagreements) == (6, [])
        return [each.facts(key).value for each in (done, aimed) for key in each.keys]

    here = run("here.db")
    elsewhere()
    for one, other in zip(here, run("there.db"), strict=True):
        assert one.tobytes() == other.tobytes()


def test_every_point_is_kept_where_a_plan_asks_for_it(tmp_path, elsewhere):
    elsewhere()
    _, missing, report = run_plan(PLAN, tmp_path / "s.db")
    assert not missing
    assert not report.failed


@pytest.mark.parametrize("rows", [6, 0])
def test_a_cascade_finds_the_same(rows, tmp_path, elsewhere):
    def run(name: str) -> sz.Result:
        members = [sz.get("sigma-zero", steps=30), sz.get("sparse-rs", steps=20)]
        auto = sz.SparseAutoAttack(MODEL, "L0", 3, verbose=False, version="custom", attacks_to_run=members)
        again = {"bs": 4, "state_path": tmp_path / name}
        first = auto.run_standard_evaluation(X[:rows], Y[:rows], **again)
        assert first.equal(auto.run_standard_evaluation(X[:rows], Y[:rows], **again))
        return auto.result.best

    here = run("here.db")
    elsewhere()
    there = run("there.db")
    assert there.x_adv.device.type == "cpu"
    assert there.x_adv.equal(here.x_adv)
    assert there.forwards.equal(here.forwards)


def test_the_doctor_says_the_same(elsewhere):
    model = torch.nn.Sequential(MODEL, torch.nn.Softmax(1)).eval()
    here = examine(model, X, Y)
    elsewhere()
    assert examine(model, X, Y) == here
    assert [finding.code for finding in here]


def test_examples_of_others_are_refined_the_same(elsewhere):
    start = sz.get("sigma-zero", steps=8).run(MODEL, X, Y).x_adv
    here = sz.refine(MODEL, X, Y, start, queries=60)
    elsewhere()
    assert here.equal(sz.refine(MODEL, X, Y, start, queries=60))
