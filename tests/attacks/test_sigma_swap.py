"""σ-swap keeps its limit of queries, plans its phases inside it, and its search refines what others found."""

import pytest
import torch

import sigmazero as sz
from sigmazero.attacks.swap.opening import Ladder
from sigmazero.attacks.swap.search import SwapSearch
from sigmazero.core.inputs import make_problem
from tests.helpers.networks import TinyNet, linear_optimum, linear_problem

TARGETS = [False, True]


def tagged(n: int = 6):
    """A problem whose rows can be told apart inside the model, as `Counting` needs; the tag may not change."""
    model, x, _ = linear_problem((2, 4, 4), n, seed=2)
    x.flatten(1)[:, -1] = torch.arange(n) / 1000
    mask = torch.ones(2, 4, 4, dtype=torch.bool)
    mask[-1, -1, -1] = False
    return model, x, model(x).argmax(1), mask


@pytest.mark.parametrize(("queries", "proposals"), [(13, 5), (30, 5), (60, 5), (84, 20), (105, 40)])
def test_a_coarse_search_whose_records_fail_keeps_the_limit(queries, proposals):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    x = torch.rand(200, 1, 8, 8)
    attack = sz.get("sigma-swap", queries=queries, proposals=proposals)
    result = attack.run(net, x, net(x).argmax(1), hardware=sz.Hardware(precision="bf16"))
    assert int((result.forwards + result.backwards).max()) <= queries


@pytest.mark.parametrize("targeted", TARGETS)
@pytest.mark.parametrize("queries", [5, 20, 200, 2000, 10000])
def test_the_plan_uses_what_it_may(queries, targeted):
    problem = make_problem(torch.zeros(1, 3), torch.zeros(1, dtype=torch.int64), targeted=targeted)
    phases = sz.get("sigma-swap", queries=queries).phases(problem)
    asked = [(phase.proposals + 1 if isinstance(phase, SwapSearch) else 2) * phase.steps for phase in phases]
    assert queries - 1 <= 3 + sum(asked) <= queries


@pytest.mark.parametrize("queries", [5, 40, 63])
def test_few_queries_leave_nothing_for_the_search(queries):
    assert not any(isinstance(phase, SwapSearch) for phase in sz.get("sigma-swap", queries=queries).phases())


def test_few_queries_are_whole_choices_and_come_near_the_fewest_changes():
    model, x, y = linear_problem((3, 8, 8), 60, seed=1)
    attack = sz.get("sigma-swap", queries=40)
    (ladder,) = attack.phases(make_problem(x, y))
    assert isinstance(ladder, Ladder)
    result = attack.run(model, x, y)
    best = linear_optimum(model, x, y)
    assert result.success.all()
    assert float((result.l0 - best).mean()) <= 1
    assert int((result.forwards + result.backwards).max()) <= 40


@pytest.mark.parametrize("targeted", TARGETS)
def test_whole_choices_are_not_for_targets(targeted):
    problem = make_problem(torch.zeros(1, 3), torch.zeros(1, dtype=torch.int64), targeted=targeted)
    (phase,) = sz.get("sigma-swap", queries=40).phases(problem)
    assert isinstance(phase, Ladder) != targeted


@pytest.mark.parametrize("queries", [100, 200, 2000])
def test_the_search_begins_from_a_fair_example(queries):
    opening, search = sz.get("sigma-swap", queries=queries).phases()
    assert opening.steps >= 30
    assert isinstance(search, SwapSearch)


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


@pytest.mark.parametrize("queries", [30, 40, 60])
def test_with_few_queries_no_worse_than_sigma_zero(queries):
    model, x, y = linear_problem((3, 8, 8), 60, seed=1)
    ours = sz.get("sigma-swap", queries=queries).run(model, x, y)
    theirs = sz.get("sigma-zero", steps=queries // 2).run(model, x, y)
    worst = x[0].numel()
    assert ours.l0.clamp(max=worst).mean() <= theirs.l0.clamp(max=worst).mean()


def test_without_a_limit_it_may_ask_as_much_as_sigma_zero():
    assert sz.get("sigma-swap", steps=100).limit == 2 * 100 + 3


@pytest.mark.parametrize("wrong", [{"queries": 4}, {"queries": 7.5}, {"share": 0.0}, {"share": 1.5}, {"steps": 0}])
def test_refuses(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        sz.get("sigma-swap", **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"queries": 4},
        {"trust": 0.0},
        {"choices": -0.1},
        {"momentum": 1.0},
        {"heat": -1.0},
        {"radius": -1},
        {"proposals": 0},
        {"proposals": 2.5},
        {"sharpness": 1.5},
    ],
)
def test_the_search_refuses(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        sz.get("swap-search", **wrong)


def test_the_opening_refuses_what_cannot_go_on():
    for name in ("first", "first_hard"):
        with pytest.raises(ValueError, match=f"{name}='fmn' must be sigma-zero"):
            sz.get("sigma-swap", **{name: sz.get("fmn")})


@pytest.mark.parametrize("name", ["swap-search", "sigma-swap"])
def test_needs_finite_bounds(name):
    net = TinyNet("conv")
    with pytest.raises(ValueError, match="finite bounds"):
        sz.get(name, steps=20).run(net, net.x, net.y, bounds=(-torch.inf, torch.inf))


def test_sparser_than_sigma_zero_at_equal_queries():
    """On random linear models, where the optimum is known; the whole point of the attack."""
    model, x, y = linear_problem((3, 8, 8), 40, seed=1)
    ours = sz.get("sigma-swap", queries=200).run(model, x, y)
    theirs = sz.get("sigma-zero", steps=100).run(model, x, y)
    known = linear_optimum(model, x, y).isfinite() & theirs.success & ours.success
    assert ours.l0[known].mean() < theirs.l0[known].mean()


@pytest.mark.parametrize("unit", ["feature", "pixel"])
@pytest.mark.parametrize("targeted", TARGETS)
def test_refine_never_makes_it_worse(unit, targeted):
    net = TinyNet("rgb")
    goal = (net.y + 1) % 4 if targeted else net.y
    found = sz.get("fmn", steps=30).run(net, net.x, goal, unit=unit, targeted=targeted)
    better = sz.refine(net, net.x, goal, found.x_adv, queries=200, unit=unit, targeted=targeted)
    problem = make_problem(net.x, goal, unit=unit, targeted=targeted)
    before, after = (problem.domain.count(points).sites for points in (found.x_adv, better))
    assert problem.goal.fooled(net(better))[found.success].all()
    assert (after <= before)[found.success].all()
    assert (after < before)[found.success].any()
    assert problem.domain.within(better).all()


def test_refine_keeps_the_mask():
    model, x, y, mask = tagged()
    start = torch.where(mask, 1 - x, x)
    better = sz.refine(model, x, y, start, queries=60, mask=mask)
    assert torch.equal(better[..., -1:, -1:][:, -1:], x[..., -1:, -1:][:, -1:])
    assert (better != start).any()


def test_refine_returns_what_it_cannot_use():
    def steadfast(x):
        return torch.stack([1 + 0 * x.sum(1), 0 * x.sum(1)], 1)

    x, start = torch.rand(3, 5), torch.rand(3, 5)
    with pytest.warns(UserWarning, match="SZ004"):
        assert torch.equal(sz.refine(steadfast, x, torch.zeros(3, dtype=torch.int64), start, queries=40), start)


def test_no_start_grows_from_the_clean_input():
    net = TinyNet("conv")
    result = sz.get("swap-search", steps=20).run(net, net.x, net.y)
    assert result.success.all()


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
