"""Every query of the authors' released code, reproduced."""

import math

import pytest
import torch
from torch import Tensor

import sigmazero as sz
from tests.helpers.networks import TinyNet
from tests.helpers.traces import CORRECT, Recording, recorded, same, search, searches

RUNS = {
    "official_30": ("sigma-zero", 30, None),
    "official_100": ("sigma-zero", 100, None),
    "star_30": ("sigma-zero-star", 30, None),
    "star_100": ("sigma-zero-star", 100, None),
    "budget3_100": ("sigma-zero", 100, 3),
    "budget6_100": ("sigma-zero", 100, 6),
}


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("run", RUNS)
def test_every_query_is_the_released_codes(run, kind):
    name, steps, budget = RUNS[run]
    net, trace = TinyNet(kind), recorded(f"sigma_zero_{run}", kind)
    attack = sz.get(name, steps=steps)
    if budget is None:
        found = searches(attack, net, net.x[:5], net.y[:5])
    else:
        found = [search(attack, net, net.x, net.y, row, budget=budget) for row in CORRECT]
    for row, (ours, slopes, result) in enumerate(found):
        comparable = min(trace["n_saved"][row], trace["stable_queries"][row])
        assert comparable > 0
        same(ours[:comparable], trace["queries"][row, :comparable])
        assert len(ours) == trace["n_forward"][row]
        assert slopes.sum() == result.backwards == trace["n_backward"][row]
        if trace["stable_queries"][row] == trace["n_forward"][row]:
            point = result.l0[0].isfinite()  # one beyond the budget is a success to the released code
            assert point == trace["success"][row]
            assert not point or result.l0 == trace["l0"][row]
            assert result.success[0] == (point and (budget is None or result.l0[0] <= budget))
            same(result.x_adv[0], trace["final"][row])
    already = attack.run(net, net.x[5:], net.y[5:], budget=budget)
    assert [already.l0.item(), already.forwards.item(), already.backwards.item()] == [0, 1, 0]


def test_threshold_is_strict():
    """A change exactly as large as the threshold survives; the traces contain no such case."""
    net = TinyNet("conv")
    x, asked = torch.zeros_like(net.x[:1]), Recording(net)
    # A step longer than the box lands on its face: the change is exactly 1, as is the threshold.
    attack = sz.get("sigma-zero", steps=2, step_size=2.0, threshold=1.0, adaptive_threshold=False)
    attack.run(asked, x, net(x).argmax(1))
    assert set(asked.points[2].unique().tolist()) == {0.0, 1.0}


def plain(net: torch.nn.Module, x: Tensor, y: Tensor, steps: int, p: float) -> list[Tensor]:
    """Return the points that σ-zero asks about, as its authors' loop would, with gradients divided by their p-norm."""
    δ, m, v, τ, asked = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x), 0.3, []
    for i in range(steps):
        point = (x + δ).requires_grad_()
        asked.append(point.detach())
        logits = net(point)
        own, other = logits[0, y[0]], logits[0].index_fill(0, y, -torch.inf).max()
        change = (point - x).square()
        (g,) = torch.autograd.grad((own - other).relu() + (change / (change + 1e-3)).mean(), point)
        g = g / g.norm(p=p).clamp(min=1e-12)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        now, after = (0.1 + 0.9 * (1 + math.cos(math.pi * j / steps)) / 2 for j in (i, i + 1))
        step = m / (1 - 0.9 ** (i + 1)) / ((v / (1 - 0.999 ** (i + 1))).sqrt() + 1e-8)
        δ = (x + δ - now * step).clamp(0, 1) - x
        τ = min(max(τ + (0.01 if own < other else -0.01) * after, 0), 1)
        δ = torch.where(δ.abs() < τ, 0.0, δ)
    return asked


@pytest.mark.parametrize("p", [math.inf, 1, 2, 3.5])
def test_gradients_are_divided_by_the_norm_that_is_asked_for(p):
    net = TinyNet("conv")
    expected = plain(net, net.x[:1], net.y[:1], 20, p)
    asked, _, _ = search(sz.get("sigma-zero", steps=20, grad_norm=p), net, net.x, net.y, 0)
    same(asked[:20], torch.cat(expected))
