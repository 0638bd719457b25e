"""What every attack must keep, tested because it is registered."""

import inspect
import math
from functools import cache, partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sigmazero as sz
from sigmazero.models import LimitedModel
from tests.helpers.attacks import EVERY, how, longer, same, small
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
# A fixed-budget attack does not minimise, and has no run without a budget; its minimum-norm form is registered too.
MINIMUM = [name for name in EVERY if sz.ATTACKS[name].kind == "minimum-norm"]
WITH_BUDGETS = [(name, 6) for name in EVERY] + [(name, None) for name in MINIMUM]
# Methods that draw random numbers. pdpgd starts at random; pdpgd-paper does not.
DRAWS = (
    "bb",
    "genetic",
    "label-swap",
    "pgd-l0",
    "query-swap",
    "sigma-swap",
    "sparse-rs",
    "spgd",
    "swap-search",
    "vfga",
)
# Forwards and backwards of eight steps where nothing fools the model, the clean check included: (9, 8) unless listed,
# and without backwards where no gradients are needed.
EIGHT_STEPS: dict[str, tuple[int, int]] = {
    "bb": (1002, 0),  # a thousand tries to find a start
    "bb-dataset": (2, 0),  # the pool is the sample itself
    "corner": (257, 0),
    "corner-at": (257, 0),
    "ead": (37, 18),  # two forwards a step, and each of nine rounds ends when nothing improves
    "ead-paper": (37, 18),
    "genetic": (401, 0),
    "pgd-l0": (41, 40),  # five restarts
    "pgd-l0-min": (2, 1),  # impossible with every feature: one try of a step says so
    "query-swap": (8, 0),  # the first step is about the clean input, whose answer is known
    "sparse-rs-min": (2, 0),
    "sparsefool": (35, 40),
    "sparsefool-paper": (819, 1608),
    "spgd-projected": (10, 9),  # one more to see the last point
    "spgd-unprojected": (10, 9),
    "spgd-projected-min": (3, 2),
    "spgd-unprojected-min": (3, 2),
    "swap-search": (42, 9),
    "vfga": (169, 8),
}
PER_STEP = {"corner": 32, "corner-at": 32, "ead": 2, "ead-paper": 2, "genetic": 50, "vfga": 21}  # forwards, else 1
# Steps that ask a varying number of times, and how often at most until a step is over.
UNEVEN = {"bb": 20, "bb-dataset": 20, "query-swap": 5, "sigma-swap": 6, "sparsefool": 5, "swap-search": 7}
UNEVEN["sparsefool-paper"] = 103
ABILITIES = ("labels", "scores", "gradients")


class Recording(Counting):
    """Keeps, per sample, the points it was asked about too."""

    def __init__(self, model: nn.Module, tags: int) -> None:
        super().__init__(model, tags)
        self.asked = [torch.zeros(0) for _ in range(tags)]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        tags = (x.detach().flatten(1)[:, -1] * 1000).round().long()
        for tag in tags.unique().tolist():
            shown = x.detach()[tags == tag].clone()
            self.asked[tag] = torch.cat([self.asked[tag].to(shown).reshape(-1, *shown.shape[1:]), shown])
        return super().__call__(x)


def tagged(count: int, seed: int):
    """A linear model, samples whose last feature tells them apart, their classes, and a mask that keeps it."""
    model, x, _ = linear_problem((2, 4, 4), count, seed)
    x.flatten(1)[:, -1] = torch.arange(count) / 1000
    mask = torch.ones(2, 4, 4, dtype=torch.bool)
    mask[-1, -1, -1] = False
    return model, x, model(x).argmax(1), mask


@cache
def recorded(name: str, budget: int | None):
    """A run in two batches, and all that the model was asked."""
    model, x, y, mask = tagged(6, 2)
    y[4] = (y[4] + 1) % 4  # already wrong
    recording = Recording(model, 6)
    result = longer(name).run(recording, x, y, mask=mask, batch_size=4, budget=budget)
    return result, recording, x, y


@pytest.mark.parametrize("name", EVERY)
def test_already_wrong_inputs_cost_one_forward_and_stay(name):
    net, attack = TinyNet("conv"), small(name)
    result = attack.run(net, net.x[5:], net.y[5:], **how(attack))
    assert result.l0.tolist() == [0]
    assert torch.equal(result.x_adv, net.x[5:])
    assert (result.forwards.tolist(), result.backwards.tolist()) == ([1], [0])
    assert result.outcome.tolist() == [sz.Outcome.ALREADY]


@pytest.mark.parametrize("name", EVERY)
def test_a_sample_is_the_same_in_any_company(name):
    attack = longer(name)
    model, x, y = linear_problem((3, 4, 4), 7, seed=3)
    ids = torch.arange(100, 107)
    options = how(attack, seed=5) | ({"pool": x} if name == "bb-dataset" else {})
    whole = attack.run(model, x, y, ids=ids, **options)
    order = torch.tensor([4, 2, 6, 0, 5, 1, 3])  # in batches, the last row alone
    same(whole.take(order), attack.run(model, x[order], y[order], ids=ids[order], batch_size=3, **options))


@pytest.mark.parametrize("name", EVERY)
def test_seed_and_ids_decide(name):
    """Others give another result if the attack draws, and only then."""
    attack = sz.get(name, steps=150) if name == "sigma-swap" else small(name)  # with few steps it may draw nothing
    net = TinyNet("rgb")
    run = partial(attack.run, net, net.x, net.y, **how(attack))
    one, draws = run(seed=1), name.startswith(DRAWS) or name == "pdpgd"
    for other in (run(seed=2), run(seed=1, ids=torch.arange(6) + 50)):
        assert torch.equal(one.x_adv, other.x_adv) != draws


@pytest.mark.parametrize(("name", "budget"), WITH_BUDGETS)
def test_counts_are_exact(name, budget):
    result, recording, _, _ = recorded(name, budget)
    assert torch.equal(result.forwards, recording.forwards)
    assert torch.equal(result.backwards, recording.backwards)


@pytest.mark.parametrize(("name", "budget"), WITH_BUDGETS)
def test_the_sparsest_point_is_kept_and_its_step_is_known(name, budget):
    result, recording, x, y = recorded(name, budget)
    for row in result.found.nonzero().flatten().tolist():
        asked = recording.asked[row]
        changes = (asked != x[row]).flatten(1).sum(1)
        legal = ((asked >= 0) & (asked <= 1)).flatten(1).all(1)  # ead asks about points outside of the box too
        fooled = legal & (recording.model(asked).argmax(1) != y[row])
        assert result.l0[row] == changes[fooled].min()
        first = int((asked == result.x_adv[row]).flatten(1).all(1).nonzero()[0])
        if first == 0 or name not in UNEVEN:  # the clean check comes first, and step 0 after it
            assert result.step_found[row] == max(0, first - 1) // PER_STEP.get(name, 1)


@pytest.mark.parametrize("name", EVERY)
def test_a_sample_ends_with_the_step_that_meets_the_budget(name):
    result, recording, x, y = recorded(name, 6)
    for row in range(len(x)):
        asked = recording.asked[row]
        met = (recording.model(asked).argmax(1) != y[row]) & ((asked != x[row]).flatten(1).sum(1) <= 6)
        assert result.success[row] == met.any()
        if met.any():
            rest = UNEVEN.get(name, PER_STEP.get(name, 1))
            assert len(asked) <= int(met.nonzero()[0]) + rest + 3  # and what is verified: its own answer too


@pytest.mark.parametrize("name", EVERY)
def test_eight_steps_ask_what_they_should(name):
    model, x, y = linear_problem((2, 4, 4), 1, seed=2)
    attack = sz.get(name, steps=8)

    def never_fooled(z):
        return 1e3 * F.one_hot(y, 4) + 1e-3 * model(z)

    result = attack.run(never_fooled, x, y, **how(attack))
    wanted = EIGHT_STEPS.get(name, (9, 8 if attack.needs == "gradients" else 0))
    assert (int(result.forwards), int(result.backwards)) == wanted
    assert result.outcome.tolist() == [sz.Outcome.NO_START if name.startswith("bb") else sz.Outcome.NOT_FOUND]


@pytest.mark.parametrize("name", MINIMUM)
def test_near_the_optimum_of_linear_models(name):
    factor, steps = NEAR_BY_METHOD.get(name, NEAR)
    model, x, y = linear_problem((3, 6, 6), 24)  # enough samples for an average
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
    options = how(attack, 40, targeted=True)
    if "targeted" not in attack.goals:
        with pytest.raises(ValueError, match=f"{name}.*targeted"):
            attack.run(never_asked, net.x, targets, **options)
        return
    result = attack.run(net, net.x, targets, **options)
    found = result.found
    assert found.any()
    assert (net(result.x_adv).argmax(1) == targets)[found].all()


def never_asked(x):
    raise AssertionError("the model was asked")


@pytest.mark.parametrize("has", ABILITIES[:2])
@pytest.mark.parametrize("name", EVERY)
def test_a_model_is_asked_for_no_more_than_it_has(name, has):
    net, attack = TinyNet("conv"), sz.get(name, steps=40)
    model = sz.limit(net, ability=has)
    assert isinstance(model, LimitedModel)
    if ABILITIES.index(attack.needs) <= ABILITIES.index(has):
        result = attack.run(model, net.x[:2], net.y[:2], **how(attack, 20))
        assert result.success.all()
        assert not result.backwards.any()
        assert model.queries.asked == result.forwards.sum()
    else:
        with pytest.raises(ValueError, match=f"{name}.*{attack.needs}"):
            attack.run(model, net.x[:2], net.y[:2], **how(attack, 20))
        assert model.queries.asked == 0


@pytest.mark.filterwarnings("ignore:the step sizes")
@pytest.mark.parametrize("name", EVERY)
def test_any_box_and_mask(name):
    attack = small(name)
    model, x, y = linear_problem((3, 5, 5), 6, seed=4)
    x = 4 * x - 1  # in [-1, 3]
    y = model(x).argmax(1)
    generator = torch.Generator().manual_seed(0)
    lower, upper = x.amin(0) - torch.rand(3, 5, 5, generator=generator), torch.tensor(3.0)
    mask = torch.rand(3, 5, 5, generator=generator) < 0.7
    result = attack.run(model, x, y, bounds=(lower, upper), mask=mask, **how(attack))
    assert result.found.any()
    assert torch.equal(result.x_adv[:, ~mask], x[:, ~mask])
    assert (result.x_adv >= lower).all()
    assert (result.x_adv <= upper).all()


@pytest.mark.parametrize("name", EVERY)
def test_a_model_that_breaks_for_some_samples_leaves_the_others_alone(name):
    """For one it breaks at once, for one where something is changed."""
    attack, rest = longer(name), torch.tensor([0, 3, 4])
    model, x, y, mask = tagged(5, 6)

    def breaks(inputs):
        at_once, later = (inputs.flatten(1)[:, -1:] == x[row, -1, -1, -1] for row in (1, 2))
        later = later & (inputs != x[2]).flatten(1).any(1, keepdim=True)
        return torch.where(at_once | later, torch.nan, model(inputs))

    options = how(attack, mask=mask) | ({"pool": x[rest]} if name == "bb-dataset" else {})
    plain = attack.run(model, x, y, **options)
    result = attack.run(breaks, x, y, **options)
    assert set(result.outcome[1:3].tolist()) <= {sz.Outcome.NON_FINITE, sz.Outcome.NO_START}
    assert not result.success[1:3].any()
    same(result.take(rest), plain.take(rest))


@pytest.mark.parametrize("name", EVERY)
def test_a_budget_beyond_the_number_of_features_is_that_number(name):
    model, x, y = linear_problem((8,), 6, seed=1)
    exact, beyond = (small(name).run(model, x, y, budget=k) for k in (8, 100))
    assert torch.equal(exact.x_adv, beyond.x_adv)
    assert torch.equal(exact.forwards, beyond.forwards)
    assert beyond.success.any() or not exact.success.any()


@pytest.mark.parametrize("name", EVERY)
def test_units_change_nothing(name):
    """Powers of two scale without rounding: the same search, and the same points in other units, to the bit."""
    model, x, y = linear_problem((2, 3, 4), 6, seed=1)
    mask = torch.rand(6, 2, 3, 4, generator=torch.Generator().manual_seed(0)) < 0.8
    widths = 2.0 ** torch.randint(-3, 9, (2, 3, 4), generator=torch.Generator().manual_seed(1)).double()
    attack = small(name)
    plain = attack.run(model, x, y, mask=mask, **how(attack))
    scaled = attack.run(
        lambda z: model(z / widths), x * widths, y, mask=mask, bounds=(0 * widths, widths), **how(attack)
    )
    for field in ("success", "l0", "forwards", "backwards", "step_found", "outcome"):
        assert torch.equal(getattr(scaled, field), getattr(plain, field)), field
    assert torch.equal(scaled.x_adv, plain.x_adv * widths)


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
def test_a_success_holds_by_the_margin_that_was_asked_for(name):
    net, attack = TinyNet("conv"), small(name)
    plain = attack.run(net, net.x, net.y, **how(attack))
    least = float(-plain.margin[plain.success].median()) * 1.5 + 0.05  # more than most have by chance
    result = attack.run(net, net.x, net.y, margin=least, **how(attack))
    logits = net(result.x_adv)
    own = logits.gather(1, net.y[:, None]).squeeze(1)
    assert torch.allclose(result.margin, own - logits.scatter(1, net.y[:, None], -torch.inf).amax(1))
    assert (result.margin[result.success] <= -least).all()
    assert result.success.any()
    assert not (plain.margin[plain.success] <= -least).all()


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    ("asked", "answers"), [(torch.float32, torch.float64), (torch.float64, torch.bfloat16)], ids=str
)
def test_a_model_may_answer_in_another_number_format(name, asked, answers):
    net, attack = TinyNet("rgb"), small(name)

    def model(x):
        return net(x.double()).to(answers)

    result = attack.run(model, net.x.to(asked), net.y, **how(attack))
    found = result.found
    assert found[:5].any()
    assert result.x_adv.dtype == asked
    assert (model(result.x_adv).argmax(1) != net.y)[found].all()
    assert result.margin.dtype == torch.promote_types(asked, answers)  # wide enough for both, and known to NumPy


@pytest.mark.parametrize("name", EVERY)
def test_torchs_defaults_change_nothing(name):
    """In a box that is not the unit box, each time with a new attack, which has computed nothing yet."""
    net = TinyNet("rgb", torch.float32)

    def run() -> sz.Result:
        attack = small(name)
        return attack.run(net, net.x, net.y, bounds=(-0.5, 1.5), **how(attack))

    usual = run()
    torch.set_default_dtype(torch.float16)  # small numbers show whatever is computed in them
    try:
        with torch.device("meta"):  # a tensor there holds nothing and fits no other
            same(usual, run())
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", EVERY)
def test_parameters_are_named_and_wrong_values_refused(name):
    for field, value in sz.ATTACKS[name].parameters().items():
        assert getattr(sz.get(name, **{field: value}), field) == value
        for wrong in ("no such word", math.nan, [1]):
            with pytest.raises(ValueError, match=f"^{field}="):
                sz.get(name, **{field: wrong})
    with pytest.raises(ValueError, match="steps=0"):
        sz.get(name, steps=0)
    with pytest.raises(TypeError, match="no_such_parameter"):
        sz.get(name, no_such_parameter=1)


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


@pytest.mark.parametrize("width", [3, 8, 32])
def test_corner_asks_about_every_single_change(width):
    """Each sample falls to one feature at one end of the box, and to no other change."""
    x = torch.full((8, 4), 0.5, dtype=torch.float64)
    end = torch.tensor([0.0, 1.0]).repeat(4)

    class Locked(torch.nn.Module):
        def forward(self, points):
            falls = (points[:, torch.arange(4).repeat_interleave(2)] == end).double()
            return torch.cat([torch.full((len(points), 1), 0.5, dtype=torch.float64), falls], 1)

    targets = torch.arange(1, 9)
    result = sz.get("corner", width=width, steps=40).run(Locked(), x, targets, targeted=True)
    assert result.l0.tolist() == [1.0] * 8
    assert result.success.all()
