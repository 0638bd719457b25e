"""σ-swap keeps its limit of queries, plans its phases inside it, and its search refines what others found."""

import pytest
import torch

import sigmazero as sz
from sigmazero.attacks.swap.opening import Ladder
from sigmazero.attacks.swap.search import SwapSearch
from sigmazero.core.inputs import make_problem
from tests.helpers.networks import TinyNet, linear_optimum, linear_problem

TARGETS = [False, True]


@pytest.mark.parametrize(("queries", "proposals"), [(13, 5), (30, 5), (60, 5), (84, 20), (105, 40)])
def test_a_coarse_search_whose_records_fail_keeps_the_limit(queries, proposals):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    x = torch.rand(200, 1, 8, 8)
    attack = sz.get("sigma-swap", queries=queries, proposals=proposals)
    result = attack.run(net, x, net(x).argmax(1), hardware=sz.Hardware(precision="bf16"))
    assert int((result.forwards + result.backwards).max()) <= queries


@pytest.mark.parametrize(("shape", "targeted"), [((1, 3), True), ((1, 3, 64, 64), False)])
def test_a_hard_problem_takes_a_longer_opening(shape, targeted):
    attack, label = sz.get("sigma-swap", queries=600), torch.zeros(1, dtype=torch.int64)
    easy, hard = make_problem(torch.zeros(1, 3), label), make_problem(torch.zeros(shape), label, targeted=targeted)
    (short, _), (long, _) = attack.phases(easy), attack.phases(hard)
    assert long.steps >= 250 > short.steps


def test_few_queries_of_a_hard_problem_are_all_sigma_zeros():
    net = TinyNet("conv")
    goal = (net.y + 1) % 3
    attack = sz.get("sigma-swap", queries=101)
    (opening,) = attack.phases(make_problem(net.x, goal, targeted=True))
    ours = attack.run(net, net.x, goal, targeted=True)
    theirs = sz.get("sigma-zero", steps=opening.iterations).run(net, net.x, goal, targeted=True)
    assert torch.equal(ours.x_adv, theirs.x_adv)
    assert torch.equal(ours.backwards, theirs.backwards)


def test_refine_returns_what_it_cannot_use():
    def steadfast(x):
        return torch.stack([1 + 0 * x.sum(1), 0 * x.sum(1)], 1)

    x, start = torch.rand(3, 5), torch.rand(3, 5)
    with pytest.warns(UserWarning, match="SZ004"):
        assert torch.equal(sz.refine(steadfast, x, torch.zeros(3, dtype=torch.int64), start, queries=40), start)


def test_a_start_without_finite_logits_is_no_start():
    """The row goes on from the clean input; before, it ended there."""
    model, x, y = linear_problem((12,), 4, seed=1)
    start = x.clone()
    start[1] = 0.123

    def fragile(z):
        return model(z) + torch.where((z == 0.123).all(1, keepdim=True), torch.nan, 0.0)

    attack = sz.get("swap-search", steps=40)
    result = attack.run(fragile, x, y, start=start)
    assert result.success.all()
    assert result.outcome[1] == sz.Outcome.FOUND


@pytest.mark.parametrize("targeted", TARGETS)
@pytest.mark.parametrize("queries", [5, 40, 64, 200, 2000])
def test_the_plan_uses_what_it_may(queries, targeted):
    problem = make_problem(torch.zeros(1, 3), torch.zeros(1, dtype=torch.int64), targeted=targeted)
    first, *others = sz.get("sigma-swap", queries=queries).phases(problem)
    asked = [(phase.proposals + 1 if isinstance(phase, SwapSearch) else 2) * phase.steps for phase in (first, *others)]
    assert queries - 1 <= 3 + sum(asked) <= queries
    assert isinstance(first, Ladder) == (queries < 64 and not targeted)
    assert not others or first.steps >= 30  # a search begins from a fair example


@pytest.mark.parametrize(("queries", "gap"), [(40, 1.0), (200, 0.5)])
def test_near_the_fewest_changes_and_sparser_than_sigma_zero(queries, gap):
    """On random linear models, where the optimum is known; the whole point of the attack."""
    model, x, y = linear_problem((3, 8, 8), 60, seed=1)
    ours = sz.get("sigma-swap", queries=queries).run(model, x, y)
    theirs = sz.get("sigma-zero", steps=queries // 2).run(model, x, y)
    best, worst = linear_optimum(model, x, y), x[0].numel()
    assert float((ours.l0 - best).mean()) <= gap
    assert ours.l0.mean() < theirs.l0.clamp(max=worst).mean()
    assert int((ours.forwards + ours.backwards).max()) <= queries
