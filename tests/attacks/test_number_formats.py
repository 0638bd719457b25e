"""Models that answer in another number format than they are asked in, and torch's defaults: tested for every attack."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache

import pytest
import torch

import sigmazero as sz
from sigmazero.core.inputs import make_problem
from sigmazero.core.oracle import Oracle
from tests.attacks.test_attacks import EVERY, how, same, small
from tests.helpers.networks import TinyNet

pytestmark = pytest.mark.slow

FORMATS = [
    (torch.float32, torch.float64),
    (torch.float64, torch.float32),
    (torch.float32, torch.float16),
    (torch.float32, torch.bfloat16),
]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(("asked", "answers"), FORMATS, ids=str)
def test_logits_in_another_format(name, asked, answers):
    net, attack = TinyNet("rgb"), small(name)
    x = net.x.to(asked)

    def model(x):
        return net(x.double()).to(answers)

    result = attack.run(model, x, net.y, **how(attack))
    assert result.success[:5].any()
    assert result.x_adv.dtype == asked
    assert (model(result.x_adv).argmax(1) != net.y)[result.success].all()
    assert result.margin.dtype == torch.promote_types(asked, answers)  # wide enough for both, and known to NumPy


def test_an_attack_is_answered_in_the_format_of_its_inputs():
    net = TinyNet("rgb")
    x = net.x.float()
    oracle = Oracle(lambda x: net(x.double()), make_problem(x, net.y))
    answer = oracle.value_and_grad(x, oracle.goal.margin)
    logits, slopes = oracle.jacobian(x, torch.stack([net.y, 1 - net.y.clamp(max=1)], 1))
    candidates = oracle.logits(x[:, None].repeat(1, 3, 1, 1, 1), copies=3)
    tensors = (answer.logits, answer.value, answer.grad, logits, slopes, oracle.logits(x), candidates)
    assert {t.dtype for t in tensors} == {torch.float32}


def test_what_an_answer_is_worth_is_told_from_the_models_own_numbers():
    """Logits that differ in float64 and are equal in float32, where the first of equal ones would win; and a slope."""
    tiny = torch.tensor([1.0, 1.0 + 1e-12], dtype=torch.float64)

    def model(x):
        return tiny + 0 * x[:, :1].double()

    x = torch.full((1, 2), 0.5)
    oracle = Oracle(model, make_problem(x, torch.tensor([0])))
    answer = oracle.value_and_grad(x + 0.25, oracle.goal.margin)
    assert answer.logits.argmax(1).item() == 0
    assert answer.fooled.item()
    assert oracle.tally.best_l0.item() == 2
    assert answer.value.item() == pytest.approx(-1e-12, rel=1e-3)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


# Small numbers show whatever is computed in them; a meta tensor holds none and fits no other.
DEFAULTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "dtype": lambda: default_dtype(torch.float16),
    "device": lambda: torch.device("meta"),
}


def plain_run(name: str) -> sz.Result:
    """With a new attack, which has computed nothing yet, and in a box that is not the unit box."""
    net, attack = TinyNet("rgb", torch.float32), small(name)
    return attack.run(net, net.x, net.y, bounds=(-0.5, 1.5), **how(attack))


usual_run = cache(plain_run)


@pytest.mark.parametrize("default", DEFAULTS)
@pytest.mark.parametrize("name", EVERY)
def test_torchs_defaults_change_nothing(name, default):
    expected = usual_run(name)
    with DEFAULTS[default]():
        result = plain_run(name)
    same(result, expected)


def test_counts_are_exact_whatever_the_default_format():
    """Half of float32 does not hold 3001."""

    def model(x):
        return torch.stack([x.sum(1) - 0.1, 0 * x.sum(1)], 1)

    x = torch.full((1, 3001), 0.5)
    with default_dtype(torch.float16):
        result = sz.get("ead", steps=1, binary_search_steps=1, initial_const=1e3).run(model, x, torch.tensor([0]))
    assert result.l0.tolist() == result.l0_pixel.tolist() == [3001]
