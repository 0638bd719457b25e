"""A limit of queries counts the clean check and the verification, and is never exceeded."""

import warnings
from functools import cache, partial
from typing import Any

import pytest
import torch

import sigmazero as sz
from sigmazero.models import LimitedModel, OutOfQueries
from tests.helpers.attacks import EVERY, how, same, small
from tests.helpers.networks import Counting, linear_problem

LIMITS = (5, 17, 30, 200)
LIMITED = [name for name in EVERY if "queries" in sz.ATTACKS[name].parameters()]
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "targeted": {"targeted": True},
    "bf16": {"hardware": sz.Hardware(precision="bf16")},  # the clean input is asked about in two formats
    "space": {"space": sz.Space(grid={k: 0.25 for k in range(31)}, direction=["both"] * 31 + ["none"])},
}


def tagged(dtype: torch.dtype = torch.float64, grid: bool = False):
    """A model, samples whose last feature tells them apart, their classes, and a mask that keeps this feature."""
    model, x, _ = linear_problem((2, 4, 4), 6, seed=2)
    x = (4 * x).round() / 4 if grid else x
    x.flatten(1)[:, -1] = torch.arange(6) / 1000
    mask = torch.ones(2, 4, 4, dtype=torch.bool)
    mask[-1, -1, -1] = False
    return model.to(dtype), x.to(dtype), model(x.to(dtype)).argmax(1), mask


def spent(counting: Counting) -> int:
    """The most that was asked for one sample."""
    return int((counting.forwards + counting.backwards).max())


@cache
def limited(name: str, setting: str, limit: int) -> tuple[sz.Result, Counting]:
    """A run with a limit, and what the model saw."""
    model, x, y, mask = tagged(torch.float32 if setting == "bf16" else torch.float64, grid=setting == "space")
    counting = Counting(model, 6)
    goal = (y + 1) % 4 if setting == "targeted" else y
    options = SETTINGS[setting] | ({} if setting == "space" else {"mask": mask})
    return sz.get(name, queries=limit).run(counting, x, goal, **options), counting


EVERYWHERE = [
    (name, setting, 6 if (setting, limit) == ("bf16", 5) else limit)
    for name in LIMITED
    for setting in SETTINGS
    for limit in LIMITS
]


@pytest.mark.parametrize(("name", "setting", "limit"), EVERYWHERE)
def test_the_model_sees_what_the_result_says(name, setting, limit):
    result, counting = limited(name, setting, limit)
    assert torch.equal(result.forwards, counting.forwards)
    assert torch.equal(result.backwards, counting.backwards)
    assert limit < 200 or result.success.all()


@pytest.mark.parametrize(("name", "setting", "limit"), EVERYWHERE)
def test_no_sample_exceeds_its_queries(name, setting, limit):
    assert spent(limited(name, setting, limit)[1]) <= limit


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("name", LIMITED)
def test_no_sample_of_the_demo_network_exceeds_its_queries(name, limit):
    model, x = sz.models.load("demo"), torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    found = sz.get(name, queries=limit).run(model, x, model(x).argmax(1))
    asked = found.forwards + found.backwards
    assert (asked <= limit).all()
    assert (asked > 1).all()  # something is tried


def test_a_large_limit_takes_the_place_of_steps():
    model, x, y = linear_problem((90,), 4, seed=2)  # with more single changes than queries
    found = sz.get("query-swap", queries=100, steps=20).run(model, x, y)
    assert 80 < found.forwards.max() <= 100


@pytest.mark.parametrize("limit", LIMITS)
def test_what_a_surrogate_proposes_counts(limit):
    model, x, y, mask = tagged()
    counting = Counting(model, 6)
    sz.get("query-swap", queries=limit, surrogate=model.eval()).run(counting, x, y, mask=mask)
    assert spent(counting) <= limit


@pytest.mark.parametrize("limit", LIMITS)
def test_refine_keeps_its_limit(limit):
    model, x, y, mask = tagged()
    counting = Counting(model, 6)
    sz.refine(counting, x, y, torch.where(mask, 1 - x, x), queries=limit, mask=mask)
    assert spent(counting) <= limit


@pytest.mark.parametrize("name", [*LIMITED, "refine"])
def test_a_limit_too_small_for_both_checks_is_refused_before_the_first_query(name):
    model, x, y, _ = tagged(torch.float32)
    counting = Counting(model, 6)

    def run(limit: int) -> None:
        if name == "refine":
            sz.refine(counting, x, y, 1 - x, queries=limit)
        else:
            sz.get(name, queries=limit).run(counting, x, y)

    with pytest.raises(ValueError, match="queries=1"):
        run(1)
    # Where the caller computes in coarse numbers, each check asks twice.
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match=r"queries=5 .* queries=8 or more"):
        run(5)
    assert counting.forwards.sum() == 0


def signs(model, x, y):
    """An attack from elsewhere: small steps along the sign of the gradient."""
    points = x.clone()
    for _ in range(100):
        points.requires_grad_()
        (slope,) = torch.autograd.grad(model(points).gather(1, y[:, None]).sum(), points)
        slope.flatten(1)[:, -1] = 0
        points = (points - 0.02 * slope.sign()).detach().clamp(0, 1)
    return points


@pytest.mark.filterwarnings("ignore:SZ022")  # where it is stopped before it found anything
@pytest.mark.parametrize("limit", [1, *LIMITS])
def test_an_attack_of_another_library_keeps_its_limit(limit):
    model, x, y, mask = tagged()
    counting = Counting(model, 6)
    run = partial(sz.foreign(signs, max_queries=limit).run, counting, x, y, mask=mask)
    if limit == 1:
        with pytest.raises(ValueError, match="max_queries=1"):
            run()
    else:
        run()
    assert spent(counting) <= limit


@pytest.mark.parametrize("name", EVERY)
def test_a_wrapped_model_answers_no_more_than_it_may(name):
    """Its limit holds for all samples together. Those that were done by then are as without a limit."""
    model, x, y, mask = tagged()
    attack = small(name)

    def run(asked: object) -> sz.Result:
        return attack.run(asked, x[:2], y[:2], batch_size=1, mask=mask, **how(attack))

    plain = run(model)
    for limit in (1, *LIMITS):
        counting = Counting(model, 6)
        wrapped = sz.limit(counting, max_queries=limit)
        assert isinstance(wrapped, LimitedModel)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            result = run(wrapped)
        assert wrapped.queries.asked == counting.forwards.sum() <= limit
        stopped = result.outcome == sz.Outcome.STOPPED
        assert stopped.any() == (plain.forwards.sum() > limit)
        assert [f"max_queries={limit}" in str(each.message) for each in said] == [True] * int(stopped.any())
        assert not result.success[stopped].any()
        same(result.take(~stopped), plain.take(~stopped))
        if stopped.any():
            with pytest.raises(OutOfQueries, match=f"max_queries={limit}"):
                wrapped(x.repeat(limit, 1, 1, 1))


@pytest.mark.parametrize("k", [5, 10, 20])
def test_scores_alone_are_spent_on_the_budget(k):
    model, rows = sz.models.load("demo"), sz.data.load("mnist-5k-heldout", limit=40)
    attacks = sz.get("query-swap", queries=60), sz.get("sparse-rs", steps=57)
    aimed, blind = (int(attack.run(model, rows.images, rows.labels, budget=k).success.sum()) for attack in attacks)
    assert aimed > blind
