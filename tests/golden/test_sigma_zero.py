"""Every query of the authors' released code, reproduced."""

import pytest
import torch

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
