"""The cascade: never weaker than an attack of it, and every point holds."""

import warnings
from typing import Any

import pytest
import torch

import sigmazero as sz
from sigmazero.core.domain import count_features
from tests.helpers import loans
from tests.helpers.cascades import MEMBERS, MINIMUM, Rounded, Votes, custom, problem


def test_without_a_budget_it_has_every_sample_s_fewest_changes():
    net, x, y = problem()
    auto = custom(net, None)
    x_adv = auto.run_standard_evaluation(x, y, bs=5)
    alone = torch.stack([member.run(net, x, y).l0 for member in MINIMUM])
    assert torch.equal(auto.result.best.l0, alone.amin(0))
    assert torch.equal(count_features(x_adv, x).double(), alone.amin(0).double())
    assert len(set(auto.result.found_by)) > 2
    for k in (0, 1, 2, 5, 64):
        assert auto.result.robust_accuracy(k) == float((alone.amin(0) > k).double().mean())
    assert auto.result.clean_accuracy == 22 / 24


@pytest.mark.parametrize("eps", [6, None])
def test_masked_gradients_are_reported(eps):
    net = Rounded()
    x = torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    y = net(x).argmax(1)
    auto = custom(net, eps)
    with pytest.warns(UserWarning, match="SZ014 error") as caught:
        auto.run_standard_evaluation(x, y)
    assert caught[0].filename == __file__
    (finding,) = auto.result.findings
    assert "of 20 samples" in finding.detail
    assert auto.result.best.findings == (finding,)
    first = custom(net, 6, MEMBERS[::-1]).run(x, y)  # an attack that comes first beats nobody
    assert first.findings == ()
    assert "sparse-rs" in first.found_by


def test_shape_type_and_labels_are_the_caller_s():
    net, x, y = problem(6, dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x_adv, labels = custom(net, 3).run_standard_evaluation(x, y.int(), return_labels=True)
    assert (x_adv.dtype, x_adv.shape, labels.dtype) == (torch.float32, x.shape, torch.int32)
    assert torch.equal(labels, net(x_adv).argmax(1).int())
    with torch.no_grad():
        assert torch.equal(custom(net, 3).run_standard_evaluation(x, y), x_adv)
    assert torch.equal(x, problem(6, dtype=torch.float32)[1])


def test_rows_without_finite_answers_are_neither_right_nor_fooled():
    net, x, y = problem(8)
    x[0] = 0.0
    found = custom(lambda z: torch.where((z == 0).flatten(1).all(1)[:, None], torch.nan, net(z)), None).run(x, y)
    assert not found.best.success[0]
    assert (found.clean_accuracy, found.robust_accuracy(64)) == (5 / 8, 0)
    assert [bool(run.attacked[0]) for run in found.runs] == [True, False, False]


def test_a_model_without_gradients_gets_attacks_that_need_none():
    x = torch.rand(6, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    y = Votes()(x).argmax(1)
    auto = sz.SparseAutoAttack(Votes(), eps=8, version="quick", verbose=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        auto.run_standard_evaluation(x, y)
    assert str(auto.result.cascade) == "quick-scores 1"
    assert auto.result.robust_accuracy() == 0
    with pytest.raises(TypeError, match="gradient"):
        custom(Votes(), 8, ["sigma-zero"]).run(x, y)
    with pytest.raises(ValueError, match="rand"):
        sz.SparseAutoAttack(Votes(), eps=8, version="rand", verbose=False).run(x, y)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"norm": "Linf", "eps": 8 / 255}, "Linf"),
    ({"eps": 8 / 255}, r"0\.03"),
    ({"eps": 0}, "eps=0"),
    ({"eps": True}, "eps=True"),
    ({"version": "plus"}, "plus"),
    ({"attacks_to_run": ["fmn"]}, "custom"),
    ({"version": "custom"}, "attacks_to_run="),
    ({"version": "custom", "attacks_to_run": "fmn"}, "'fmn'"),
    ({"version": "custom", "attacks_to_run": ["fmn", "fmn"]}, "fmn, fmn"),
    ({"version": "custom", "attacks_to_run": ["sparse-rs"]}, "sparse-rs"),
]


@pytest.mark.parametrize(("options", "value"), WRONG)
def test_wrong_questions_are_refused(options, value):
    with pytest.raises(ValueError, match=value):
        sz.SparseAutoAttack(problem(4)[0], **options)


def test_wrong_calls_are_refused():
    net, x, y = problem(4)
    auto = custom(net, 3)
    with pytest.raises(RuntimeError, match="run_standard_evaluation"):
        _ = auto.result
    with pytest.raises(ValueError, match="bs=0"):
        auto.run_standard_evaluation(x, y, bs=0)
    with pytest.raises(ValueError, match="bounds"):
        auto.run_standard_evaluation(x + 1, y)
    with pytest.raises(ValueError, match="bounds"):
        custom(net, 3, bounds=(torch.zeros(4, 1, 8, 8), 1)).run(x, y)
    with pytest.raises(ValueError, match="sparse-rs"):  # it needs an end to move features to
        custom(net, 3, bounds=(0, torch.inf)).run(x, y)
    with pytest.raises(ValueError, match="k=5"):
        auto.run(x, y).robust_accuracy(5)
    with pytest.raises(ValueError, match="cost=1"):
        auto.result.robust_accuracy_at_cost(1)
    with pytest.raises(ValueError, match="number of changes"):
        custom(net, None).run(x, y).robust_accuracy()


def test_in_a_space_sites_and_costs_are_counted(tmp_path):
    loans.write(tmp_path)
    build: dict[str, Any] = {}
    exec(loans.NET, build)
    (x, y), space = (torch.from_numpy(each) for each in loans.table()), sz.Space.from_toml(tmp_path / "loan.toml")
    model = build["build"]()
    found = custom(model, None, ["corner", "ead", sz.get("sigma-swap", queries=100)], space=space).run(x, y)
    alone = sz.get("corner").run(model, x, y, space=space)
    assert (found.members, found.left_out) == (("corner", "sigma-swap"), ("ead",))
    assert "without ead" in found.headline
    assert (found.best.l0 < (found.best.x_adv != x).sum(1)).any()  # a category is two features and one change
    assert (found.best.cost <= alone.cost).all()
    for k in (1, 2):
        assert found.robust_accuracy(k) <= float((alone.l0 > k).double().mean())
    assert found.robust_accuracy_at_cost(1) == float((found.best.cost > 1).double().mean())
    assert "robust accuracy at cost 1" in str(found)
    with pytest.raises(ValueError, match="ead"):
        custom(model, None, ["ead"], space=space).run(x, y)


def test_lines_are_printed_and_logged(capsys, tmp_path):
    net, x, y = problem(8)
    auto = sz.SparseAutoAttack(net, eps=3, version="quick", log_path=tmp_path / "log.txt")
    auto.run_standard_evaluation(x, y)
    said = capsys.readouterr().out
    assert said == (tmp_path / "log.txt").read_text(encoding="utf-8") == f"{auto.result}\n"
    assert said.startswith("quick 1: 8 samples, at most 1,000 queries for each\n")
