"""A cascade in a space: sites and costs are counted, and members that cannot honour it are left out by name."""

from typing import Any

import pytest
import torch

import sigmazero as sz
from tests.helpers import loans


@pytest.fixture
def asked(tmp_path):
    loans.write(tmp_path)
    build: dict[str, Any] = {}
    exec(loans.NET, build)
    x, y = (torch.from_numpy(each) for each in loans.table())
    return build["build"](), x, y, sz.Space.from_toml(tmp_path / "loan.toml")


def cascade(model, space, **more):
    members: list[str | sz.Attack] = ["corner", "ead", sz.get("sigma-swap", queries=100)]
    return sz.SparseAutoAttack(model, space=space, version="custom", attacks_to_run=members, verbose=False, **more)


def test_sites_and_costs(asked):
    model, x, y, space = asked
    auto = cascade(model, space)
    x_adv = auto.run_standard_evaluation(x, y)
    report, alone = auto.report, sz.get("corner").run(model, x, y, space=space)
    assert report.members == ("corner", "sigma-swap")
    assert report.left_out == ("ead",)
    assert "without ead" in report.headline
    changed = (x_adv != x).sum(1)
    assert (report.result.l0 < changed).any()  # a category is two features and one change
    assert (report.result.cost <= alone.cost).all()
    for k in (1, 2):
        assert report.robust_accuracy(k) <= float((alone.l0 > k).double().mean())
    assert report.robust_accuracy_at_cost(1) == float((report.result.cost > 1).double().mean())
    assert report.robust_accuracy_at_cost(5) == 0
    assert "robust accuracy at cost 1" in str(report)


def test_a_budget_counts_sites_and_a_state_goes_on(asked, tmp_path):
    model, x, y, space = asked
    auto = cascade(model, space, eps=1)
    first = auto.run_standard_evaluation(x, y, state_path=tmp_path / "s.db")
    again = auto.run_standard_evaluation(x, y, state_path=tmp_path / "s.db")
    assert torch.equal(first, again)
    assert auto.report.robust_accuracy() == float((auto.report.result.l0 > 1).double().mean())
    with pytest.raises(ValueError, match="only eps=1 changes were searched"):
        auto.report.robust_accuracy_at_cost(1)
    other = cascade(model, sz.Space(upper=1000), eps=1)
    with pytest.raises(ValueError, match="other space"):
        other.run_standard_evaluation(x, y, state_path=tmp_path / "s.db")


def test_nobody_is_left(asked):
    model, x, y, space = asked
    auto = sz.SparseAutoAttack(model, space=space, version="custom", attacks_to_run=["ead"], verbose=False)
    with pytest.raises(ValueError, match="ead cannot honour a space that is more than a box"):
        auto.run_standard_evaluation(x, y)
    with pytest.raises(ValueError, match="bounds and space are both given"):
        sz.SparseAutoAttack(model, space=space, bounds=(0.0, 2.0))
