"""Random models: a point counts if most fresh draws get it wrong."""

import pytest
import torch
from torch import nn

import sigmazero as sz
from sigmazero.auto import CASCADES, Cascade, random
from sigmazero.core.inputs import make_problem
from sigmazero.core.result import Outcome
from tests.helpers.cascades import Noisy


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    attacks = (sz.get("sigma-zero", steps=20), sz.get("sparse-rs", steps=30))
    monkeypatch.setitem(CASCADES, "rand", {"few": Cascade("rand", 1, attacks, draws=4)})


def noisy():
    net = Noisy(0.5).requires_grad_(False)
    x = torch.rand(8, 1, 4, 4, generator=torch.Generator().manual_seed(3))
    return net, x, (x.flatten(1) @ net.weight).argmax(1)


def test_a_random_model_is_wrong_by_majority(tmp_path):
    net, x, y = noisy()
    auto = sz.SparseAutoAttack(net, eps=3, version="rand", verbose=False)
    torch.manual_seed(7)
    x_adv = auto.run_standard_evaluation(x, y, state_path=tmp_path / "s.db")
    left = torch.random.get_rng_state()
    found = auto.result.best.outcome == Outcome.FOUND
    assert found.any()
    wrong = torch.stack([net(x_adv).argmax(1) != y for _ in range(400)]).double().mean(0)
    assert (wrong[found] > 0.5).all()
    torch.manual_seed(8)  # nothing depends on the state outside, nor changes it
    again = sz.SparseAutoAttack(net, eps=3, version="rand", verbose=False)
    assert torch.equal(again.run_standard_evaluation(x, y, state_path=tmp_path / "s.db"), x_adv)
    assert torch.equal(sz.SparseAutoAttack(net, eps=3, version="rand", verbose=False).run(x, y).best.x_adv, x_adv)
    torch.manual_seed(7)
    assert torch.equal(torch.random.get_rng_state(), left)


@pytest.mark.filterwarnings("ignore:SZ003")
def test_points_that_are_wrong_by_luck_do_not_count():
    class Coin(nn.Module):
        """Answer class 0 most of the time, whatever the input."""

        def forward(self, x):
            tossed = (torch.rand(len(x)) < 0.4).to(x.dtype) + 0 * x.flatten(1).sum(1)
            return torch.stack([1 - tossed, tossed], 1)

    x, y = torch.full((4, 1, 4, 4), 0.5), torch.zeros(4, dtype=torch.int64)
    lucky = sz.get("sparse-rs", steps=40).run(Coin(), x, y, budget=2)
    settled = random.confirmed(lucky, make_problem(x, y, budget=2), random.Averaged(Coin(), 4, seed=0))
    held = lucky.outcome == Outcome.FOUND
    assert held.any()
    assert (settled.outcome[held] == Outcome.UNVERIFIED).all()
    assert torch.equal(settled.x_adv[held], x[held])
    assert settled.l0[held].isinf().all()
    assert torch.equal(settled.forwards, lucky.forwards * 4 + random.TRIALS * held)


def test_an_answer_does_not_depend_on_the_batch():
    net, x, _ = noisy()
    asked = random.Averaged(net, 3, seed=1)
    assert torch.allclose(asked(x)[2:3], asked(x[2:3]))
    assert not torch.allclose(asked(x), random.Averaged(net, 3, seed=2)(x))
