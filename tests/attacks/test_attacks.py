"""What every attack must keep, tested because it is registered."""

import inspect
import sys
from dataclasses import fields
from functools import partial
from pathlib import Path

import pytest
import torch

import sigmazero as sz
from sigmazero.core import noise
from sigmazero.core.inputs import make_problem
from sigmazero.run import Session
from tests.helpers.networks import Counting, TinyNet, linear_optimum, linear_problem

# On linear models, where the minimum is known: how far above it an attack may end on average, and its steps there.
# An attack that is not listed keeps the default; one that is listed is weaker or slower by its method's nature.
NEAR = (1.25, 100)
NEAR_BY_METHOD: dict[str, tuple[float, int]] = {
    "sigma-zero-star": (3.0, 500),  # a tenth of the step size and a tenth of the threshold's speed; measured up to 2.0
    "ead": (7.0, 200),  # minimises l1 and l2, which spread the change; measured 2.0 to 6.5
    "ead-paper": (7.0, 200),  # the rule changes its own answer, not its queries
    "pdpgd": (2.0, 200),  # a tenth of the step size and a slow dual variable; measured 1.0 to 1.8, 1.0 to 1.5 with 1000
    "pdpgd-paper": (17.0, 1000),  # keeps or drops whole pixels where features count; measured 1.0 to 15.8
    "sparse-rs-min": (3.0, 500),  # no gradients, 100 queries a try; measured 1.0 to 2.0, 1.3 with 4000 steps
    "spgd-projected-min": (1.5, 200),  # moves the magnitude at the chosen sites only; measured 1.0 to 1.4
    "spgd-unprojected-min": (1.25, 200),
    "genetic": (1.25, 40),  # 50 queries a step
    "swap-search": (1.25, 50),  # several queries a step
    "sparsefool": (6.5, 20),  # walks to a plane three times as far as the boundary; measured 5.6
    "sparsefool-paper": (6.5, 20),  # measured 5.6
    "label-swap": (1.5, 200),  # it sees labels alone; measured 1.0 to 1.3, 1.1 with 400 steps
    "bb": (2.75, 100),  # it follows the boundary from far away; measured up to 2.3
    "bb-dataset": (2.75, 100),  # its pool is the batch; measured up to 2.1
}
COSTLY = ("bb", "ead", "genetic")  # a step solves a problem, is taken again in each of nine rounds, or asks 50 times
EVERY = sorted(sz.ATTACKS)
# A fixed-budget attack does not minimise, and has no run without a budget; its minimum-norm form is registered too.
MINIMUM = [name for name in EVERY if sz.ATTACKS[name].kind == "minimum-norm"]
WITH_BUDGETS = [(name, 6) for name in EVERY] + [(name, None) for name in MINIMUM]


def small(name: str) -> sz.Attack:
    """The attack with as few steps as show its behaviour."""
    return _at_most(name, 8, 24)


def longer(name: str) -> sz.Attack:
    """The attack with so many steps that rows leave on the way."""
    return _at_most(name, 12, 40)


def _at_most(name: str, costly: int, others: int) -> sz.Attack:
    return sz.get(name, steps=min(sz.ATTACKS[name].steps, costly if name.startswith(COSTLY) else others))


def how(attack: sz.Attack, **options):
    """Options of a run, with the budget that fixed-budget attacks need."""
    return options | ({"budget": 12} if attack.kind == "budget" else {})


def same(a: sz.Result, b: sz.Result) -> None:
    for field in fields(a):
        one, two = getattr(a, field.name), getattr(b, field.name)
        if isinstance(one, torch.Tensor):
            assert one.dtype == two.dtype, field.name
            assert torch.equal(one, two), field.name


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("kind", ["conv", "rgb"])
def test_claims_are_true(name, kind):
    net, attack = TinyNet(kind), small(name)
    options = how(attack)
    result = attack.run(net, net.x, net.y, **options)
    found = result.found
    assert found.any()
    assert torch.equal(result.success, result.l0 <= options.get("budget", sys.maxsize))
    assert (result.x_adv >= 0).all()
    assert (result.x_adv <= 1).all()
    wrong = net(result.x_adv).argmax(1) != net.y
    assert wrong[found].all()
    changed = (result.x_adv != net.x).flatten(1).sum(1)
    assert torch.equal(result.l0[found].long(), changed[found])
    assert torch.equal(result.x_adv[~found], net.x[~found])
    assert result.l0[~found].isinf().all()
    assert (result.step_found[~found] == -1).all()


@pytest.mark.parametrize("name", EVERY)
def test_already_wrong_inputs_cost_one_forward_and_stay(name):
    net, attack = TinyNet("conv"), small(name)
    result = attack.run(net, net.x[5:], net.y[5:], **how(attack))
    assert result.l0.tolist() == [0]
    assert torch.equal(result.x_adv, net.x[5:])
    assert (result.forwards.tolist(), result.backwards.tolist()) == ([1], [0])
    assert result.outcome.tolist() == [sz.Outcome.ALREADY]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("shape", [(8,), (3, 4, 4)])
def test_a_sample_is_the_same_in_any_company(name, shape):
    attack = longer(name)
    model, x, y = linear_problem(shape, 7, seed=3)
    ids = torch.arange(100, 107)
    options = how(attack, seed=5, pool=x)
    whole = attack.run(model, x, y, ids=ids, **options)
    same(whole, attack.run(model, x, y, ids=ids, batch_size=3, **options))  # the last row alone
    order = torch.tensor([4, 2, 6, 0, 5, 1, 3])
    same(whole.take(order), attack.run(model, x[order], y[order], ids=ids[order], **options))
    problem = make_problem(x, y, seed=5, ids=ids, budget=options.get("budget"))
    same(whole, Session(attack, model, compact=False).run(problem))


@pytest.mark.parametrize("name", EVERY)
def test_seed_decides(name, monkeypatch):
    """The same seed gives the same result; another seed gives another one if the attack draws, and only then."""
    draws: list[str] = []

    def noted(function):
        drawing = getattr(noise, function)

        def drawn(*a, **k):
            draws.append(function)
            return drawing(*a, **k)

        monkeypatch.setattr(noise, function, drawn)

    noted("bits")
    noted("source")
    net, attack = TinyNet("rgb"), small(name)
    one, again, other = (attack.run(net, net.x, net.y, **how(attack, seed=seed)) for seed in (1, 1, 2))
    same(one, again)
    assert torch.equal(one.x_adv, other.x_adv) == (not draws)


@pytest.mark.parametrize(("name", "budget"), WITH_BUDGETS)
def test_counts_are_exact(name, budget):
    attack = longer(name)
    model, x, y = linear_problem((2, 4, 4), 6, seed=2)
    x.flatten(1)[:, -1] = torch.arange(6) / 1000  # a tag to be recognised by
    y = model(x).argmax(1)
    y[4] = (y[4] + 1) % 4  # already wrong
    mask = torch.ones(2, 4, 4, dtype=torch.bool)
    mask[-1, -1, -1] = False
    counting = Counting(model, 6)
    result = attack.run(counting, x, y, mask=mask, batch_size=4, budget=budget)  # four and two
    assert torch.equal(result.forwards, counting.forwards)
    assert torch.equal(result.backwards, counting.backwards)


@pytest.mark.parametrize("name", MINIMUM)
@pytest.mark.parametrize("shape", [(8,), (4, 6), (3, 8, 8)])
def test_near_the_optimum_of_linear_models(name, shape):
    factor, steps = NEAR_BY_METHOD.get(name, NEAR)
    model, x, y = linear_problem(shape, 24)  # enough samples for an average
    optimum = linear_optimum(model, x, y)
    possible = optimum.isfinite()
    assert possible.sum() > 12
    result = sz.get(name, steps=steps).run(model, x, y)
    assert (result.l0 >= optimum).all()
    assert result.l0[possible].mean() <= factor * optimum[possible].mean()


@pytest.mark.parametrize("name", EVERY)
def test_goals(name):
    net, attack = TinyNet("rgb"), small(name)
    targets = (net.y + 1) % 4
    if "targeted" not in attack.goals:
        calls: list[int] = []

        def model(x):
            calls.append(len(x))
            return net(x)

        with pytest.raises(ValueError, match="no targeted form"):
            attack.run(model, net.x, targets, targeted=True, **how(attack))
        assert not calls
        return
    options = how(attack, targeted=True) | ({"budget": 40} if attack.kind == "budget" else {})
    result = attack.run(net, net.x, targets, **options)
    assert result.found.any()
    reached = net(result.x_adv).argmax(1) == targets
    assert reached[result.found].all()


@pytest.mark.filterwarnings("ignore:the step sizes")
@pytest.mark.parametrize("name", EVERY)
def test_any_box_and_mask(name):
    attack = small(name)
    model, x, y = linear_problem((3, 5, 5), 6, seed=4)
    x = 4 * x - 1  # in [-1, 3]
    y = model(x).argmax(1)
    lower, upper = torch.full((3, 5, 5), -1.0), torch.tensor(3.0)
    mask = torch.rand(3, 5, 5, generator=torch.Generator().manual_seed(0)) < 0.7
    result = attack.run(model, x, y, bounds=(lower, upper), mask=mask, **how(attack))
    assert result.found.any()
    assert torch.equal(result.x_adv[:, ~mask], x[:, ~mask])
    assert (result.x_adv >= -1).all()
    assert (result.x_adv <= 3).all()


@pytest.mark.parametrize("name", EVERY)
def test_pixel_unit_counts_positions(name):
    net, attack = TinyNet("rgb"), small(name)
    result = attack.run(net, net.x, net.y, unit="pixel", **how(attack))
    positions = (result.x_adv != net.x).any(1).flatten(1).sum(1)
    assert result.success.any()
    assert torch.equal(result.l0_pixel[result.success].long(), positions[result.success])
    assert torch.equal(result.changes, result.l0_pixel)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("when", ["clean", "moved"])
def test_a_model_that_breaks_for_one_sample_leaves_the_others_alone(name, when):
    attack = longer(name)
    model, x, y = linear_problem((2, 4, 4), 4, seed=6)
    x.flatten(1)[:, -1] = torch.arange(4) / 1000  # a tag to be recognised by
    y = model(x).argmax(1)
    mask = torch.ones(2, 4, 4, dtype=torch.bool)
    mask[-1, -1, -1] = False

    def breaks(inputs):
        broken = inputs.flatten(1)[:, -1:] == x[1, -1, -1, -1]
        if when == "moved":
            broken = broken & (inputs != x[1]).flatten(1).any(1, keepdim=True)
        return torch.where(broken, torch.nan, model(inputs))

    options = how(attack, mask=mask, pool=x[[0, 2, 3]])
    result = attack.run(breaks, x, y, **options)
    assert result.outcome[1] in (sz.Outcome.NON_FINITE, sz.Outcome.NO_START)
    assert not result.success[1]
    rest = torch.tensor([0, 2, 3])
    same(result.take(rest), attack.run(model, x, y, **options).take(rest))


@pytest.mark.parametrize("name", EVERY)
def test_a_budget_beyond_the_number_of_features_is_that_number(name):
    model, x, y = linear_problem((8,), 6, seed=1)
    exact, beyond = (small(name).run(model, x, y, budget=k) for k in (8, 100))
    assert torch.equal(exact.x_adv, beyond.x_adv)
    assert torch.equal(exact.forwards, beyond.forwards)
    assert beyond.success.any() or not exact.success.any()


def _scaled(model, width, z):
    return model(z / width)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", EVERY)
def test_units_change_nothing(name, masked):
    """Powers of two scale without rounding: the same search, and the same points in other units, to the bit."""
    model, x, y = linear_problem((2, 3, 4), 6, seed=1)
    mask = torch.rand(6, 2, 3, 4, generator=torch.Generator().manual_seed(0)) < 0.8 if masked else None
    widths = 2.0 ** torch.randint(-3, 9, (2, 3, 4), generator=torch.Generator().manual_seed(1)).double()
    attack = small(name)
    plain = attack.run(model, x, y, mask=mask, **how(attack))
    for bounds, width in (((0.0, 256.0), torch.tensor(256.0)), ((torch.zeros(2, 3, 4), widths), widths)):
        inside = partial(_scaled, model, width)
        scaled = attack.run(inside, x * width, y, mask=mask, bounds=bounds, **how(attack))
        for field in ("success", "l0", "forwards", "backwards", "step_found", "outcome"):
            assert torch.equal(getattr(scaled, field), getattr(plain, field)), field
        assert torch.equal(scaled.x_adv, plain.x_adv * width)


@pytest.mark.parametrize("name", EVERY)
def test_unchanged_values_keep_their_bits_and_ends_are_the_boxs_own(name):
    """A box in which scaling does round."""
    model, x, y = linear_problem((12,), 6, seed=1)
    lower, upper = -0.1, 254.7
    user = lower + x * (upper - lower)
    attack = small(name)
    result = attack.run(lambda z: model((z - lower) / (upper - lower)), user, y, bounds=(lower, upper), **how(attack))
    assert torch.equal((result.x_adv != user).sum(1)[result.success], result.l0[result.success].long())
    assert bool(((result.x_adv >= lower) & (result.x_adv <= upper)).all())
    plain = attack.run(model, x, y, **how(attack))
    assert torch.equal(result.success, plain.success)
    near = (result.l0 - plain.l0).abs()[plain.success] <= 1
    assert near.all(), (result.l0, plain.l0)


@pytest.mark.parametrize("name", EVERY)
def test_documented(name):
    attack = sz.ATTACKS[name]
    module = inspect.getmodule(type(attack))
    assert attack.name == name
    ours = Path(__file__).parents[2] / attack.paper  # a method of our own has a page instead
    assert attack.paper.startswith("https://") or ours.is_file()
    assert module is not None
    assert attack.paper in (module.__doc__ or "")
    assert ">>>" in (module.__doc__ or "")
