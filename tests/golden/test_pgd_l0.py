"""PGD-l0: every query of the reference, given its draws, and its outcomes over many seeds."""

import pytest
import torch

import sigmazero as sz
from sigmazero.attacks.pgd_l0 import PGDL0
from sigmazero.core.inputs import make_problem
from sigmazero.core.oracle import Oracle
from tests.golden.recorded import Queries, rank_sum_z, recorded
from tests.helpers.networks import TinyNet


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("mode", ["pixel", "feature"])
def test_every_query_is_the_references(mode, kind, monkeypatch):
    """Without the driver, so that a row goes on after its first success, as in the reference."""
    net, trace = TinyNet(kind), recorded(f"trace_pgd0_{mode}_k4_n40", kind)

    def fed(self, oracle, i):
        return trace["init_uniform"] + net.x if i == 0 else trace["noise_uniform01"][:, i - 1]

    monkeypatch.setattr(PGDL0, "_draw", fed)
    queries = Queries(monkeypatch, "value_and_grad")
    attack = PGDL0(steps=39, restarts=1, group="pixel" if mode == "pixel" else "unit")
    oracle = Oracle(net, make_problem(net.x, net.y, budget=4, unit="feature"))
    state = attack.init(oracle)
    for i in range(attack.iterations):
        state = attack.step(torch.tensor(i), state, oracle)
    for row in range(6):
        assert trace["stable_queries"][row] == 40  # the first is the clean input
        torch.testing.assert_close(queries.of(row), trace["queries"][row, 1:], rtol=0, atol=1e-9)
        torch.testing.assert_close(state.own[row], trace["final"][row], rtol=0, atol=1e-9)


def test_pixel_unit_and_pixel_groups_project_alike():
    net = TinyNet("rgb")
    δ = torch.randn(net.x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    k = torch.arange(6)
    features, pixels = (make_problem(net.x, net.y, budget=4, unit=unit) for unit in ("feature", "pixel"))
    one = PGDL0(group="pixel").project(δ, k, features)
    assert torch.equal(one, PGDL0().project(δ, k, pixels))
    assert pixels.l0(one).tolist() == list(range(6))


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("mode", ["pixel", "feature"])
def test_outcomes_are_distributed_like_the_references(mode, kind):
    net, theirs = TinyNet(kind), recorded(f"stats_pgd0_{mode}_k4_n100", kind)
    seeds = 200
    x, y = (t[:5].repeat_interleave(seeds, 0) for t in (net.x, net.y))
    attack = sz.get("pgd-l0", steps=99, restarts=1)
    result = attack.run(net, x, y, budget=4, unit=mode)
    ours = torch.where(result.success, result.l0, 0).view(5, seeds)
    for row in range(5):
        assert abs(rank_sum_z(ours[row], theirs["l0"][row])) < 3, row


def test_own_answer_is_the_latest_adversarial_point():
    """Pixel groups in a run that counts features: adversarial, but over the budget, so the row goes on."""
    net = TinyNet("rgb")
    result = sz.get("pgd-l0-paper", steps=30).run(net, net.x[:4], net.y[:4], budget=4)
    assert result.own is not None
    assert result.own.success.all()
    assert (result.own.l0 == 12).all()
    assert (result.own.l0_pixel == 4).all()


def test_restarts_go_on_where_the_last_one_failed():
    net = TinyNet("conv")
    x, y = (t[1:3].repeat_interleave(50, 0) for t in (net.x, net.y))
    once, often = (sz.get("pgd-l0", steps=40, restarts=n).run(net, x, y, budget=4) for n in (1, 5))
    assert torch.equal(often.x_adv[once.success], once.x_adv[once.success])
    assert often.success.sum() > once.success.sum()
    failed = ~often.success
    assert (often.backwards[failed] == 200).all()
