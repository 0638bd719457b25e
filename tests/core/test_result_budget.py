"""A success is within the budget; a verified point beyond it is kept and is none."""

import pytest
import torch

import sigmazero as sz
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
