"""A success is within the budget; a verified point beyond it is kept and is none."""

import pytest
import torch

import sigmazero as sz
from sigmazero.adapters import adv_lib
from sigmazero.core.result import Outcome

LAST = torch.nn.Linear(4, 2).requires_grad_(False)
LAST.weight.copy_(torch.tensor([[4.0, 3.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.0]]))
LAST.bias.copy_(torch.tensor([0.0, 3.5]))
MODEL = torch.nn.Sequential(torch.nn.Flatten(), LAST)
X = torch.tensor([0.5, 0.5, 0.5, 0.1])[:, None, None, None].repeat(1, 2, 1, 2)  # the last is wrong already
Y = torch.zeros(4, dtype=torch.int64)


def points():
    """One change; both channels of one pixel; one that does not fool; none."""
    x_adv = X.clone()
    x_adv[0, 0, 0, 0] = x_adv[1, :, 0, 0] = x_adv[2, 1, 0, 1] = 0.0
    return x_adv


@pytest.mark.parametrize(("unit", "second"), [("feature", Outcome.BEYOND_BUDGET), ("pixel", Outcome.FOUND)])
def test_the_budget_counts_in_the_unit_asked_for(unit, second):
    free, within = (sz.check(MODEL, X, Y, points(), unit=unit, budget=budget) for budget in (None, 1))
    assert free.outcome.tolist() == [Outcome.FOUND, Outcome.FOUND, Outcome.UNVERIFIED, Outcome.ALREADY]
    assert free.success.equal(free.found)
    assert within.outcome.tolist() == [Outcome.FOUND, second, Outcome.UNVERIFIED, Outcome.ALREADY]
    assert within.success.tolist() == [True, second == Outcome.FOUND, False, True]
    assert within.success.double().mean() == within.asr(1)
    assert within.found.equal(free.found)
    for name in ("x_adv", "l0", "l0_pixel", "cost", "margin", "prediction", "step_found", "forwards"):
        assert getattr(within, name).equal(getattr(free, name)), name
    assert within.asr_at_cost() == within.asr(torch.inf) == free.asr() == 0.75
    assert within.asr() == within.success.double().mean()


def test_the_first_line_says_what_is_within_the_budget():
    result = sz.check(MODEL, X, Y, points(), budget=1)
    for text in (repr(result), result._repr_html_()):
        assert "50.0% fooled" in text
        assert "within 1 features, 1 sample only beyond it" in text
    said, headings, figures = str(result).splitlines()[:3]
    assert said.startswith(
        "2 of 4 samples are fooled by changing at most 1 of 4 values, 1 sample only beyond it; weakest:"
    )
    assert "fooled within 1" in headings
    assert "50.0%" in figures
    assert "beyond" not in repr(sz.check(MODEL, X, Y, points(), budget=2))


def test_what_a_method_returned_is_judged_by_the_same_rule():
    def wasteful(model, x, y):
        return torch.where(torch.arange(4).view(1, 2, 1, 2) < 2, 0.0, x)  # it asks nothing: two changes, unseen before

    result = sz.foreign(wasteful).run(MODEL, X, Y, budget=1)
    assert result.own is not None
    assert result.own.outcome.tolist() == [*[Outcome.BEYOND_BUDGET] * 3, Outcome.ALREADY]
    assert result.own.success.tolist() == [False, False, False, True]


def test_inputs_for_other_libraries_are_within_the_budget():
    result = sz.get("pdpgd", steps=20).run(MODEL, X, Y, budget=0)
    beyond = result.outcome == Outcome.BEYOND_BUDGET
    assert beyond.tolist() == [True, True, True, False]
    assert adv_lib.run("pdpgd", MODEL, X, Y, num_steps=20, budget=0).equal(X)
    assert adv_lib.run("pdpgd", MODEL, X, Y, num_steps=20)[:3].equal(result.x_adv[:3])
    assert sz.sigma_zero(MODEL, X, Y, steps=20, budget=0).equal(X)
    fewer = sz.refine(MODEL, X, Y, result.x_adv, budget=0)  # which makes points sparser, and has no success to tell
    assert sz.check(MODEL, X, Y, fewer).found.all()


def test_a_store_keeps_points_beyond_the_budget_and_does_not_search_again(tmp_path):
    def evaluated():
        return sz.evaluate(MODEL, (X, Y), [sz.get("sigma-zero", steps=20)], budgets=[0], store=tmp_path / "s.db")

    first, second = evaluated(), evaluated()
    facts, again = first.facts(first.keys[0]), second.facts(second.keys[0])
    assert facts.outcome.tolist() == [*[Outcome.BEYOND_BUDGET] * 3, Outcome.ALREADY]
    assert facts.success.tolist() == [False, False, False, True]
    assert facts.found.all()
    assert facts.seconds.tolist() == again.seconds.tolist()  # the same search
    assert first.records()[0]["asr_0"] == 0.25
    assert not first.verify().disagreements
    assert first.verify().found == 3


def test_a_cascade_counts_points_beyond_the_budget_as_not_fooled():
    x = X + torch.tensor([0.2, 0.2, 0.2, 0.0])[:, None, None, None]  # one change does not fool these
    cascade = sz.SparseAutoAttack(MODEL, "L0", 1, verbose=False, version="custom", attacks_to_run=["pdpgd"])
    x_adv = cascade.run_standard_evaluation(x, Y)
    assert x_adv.equal(x)
    assert cascade.result.robust_accuracy() == cascade.result.clean_accuracy == 0.75
    assert cascade.result.best.outcome.tolist() == [*[Outcome.NOT_FOUND] * 3, Outcome.ALREADY]
