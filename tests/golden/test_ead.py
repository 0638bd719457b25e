"""Every query of foolbox's EAD, reproduced one input at a time: here each sample aborts its rounds by itself."""

import pytest

import sigmazero as sz
from tests.helpers.networks import TinyNet
from tests.helpers.traces import CORRECT, recorded, same, search

RUNS = {
    "ead_bs3_EN": ("elastic-net", 3, 1e-3),
    "ead_bs3_L1": ("l1", 3, 1e-3),
    "ead_bs5_EN_c1": ("elastic-net", 5, 1.0),
    "ead_bs9_EN": ("elastic-net", 9, 1e-3),
    "ead_bs9_L1": ("l1", 9, 1e-3),
}


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("run", RUNS)
def test_every_query_is_foolboxs(run, kind):
    rule, rounds, const = RUNS[run]
    net, trace = TinyNet(kind), recorded(run, kind)
    attack = sz.get("ead", steps=30, rule=rule, binary_search_steps=rounds, initial_const=const)
    for row in CORRECT:
        points, slopes, result = search(attack, net, net.x, net.y, row)
        assert trace["stable_queries"][row] == trace["n_forward"][row]
        # A gradient and a check per step; foolbox skips the check in the step that aborts a round.
        steps = int(trace["n_backward"][row])
        assert slopes.tolist() == [True, False] * steps
        with_gradient = trace["query_backwards"][row, : trace["n_saved"][row]] == 1
        ours = points[2 * (with_gradient.cumsum(0) - 1) + (~with_gradient).long()]
        same(ours, trace["queries"][row, : len(ours)])
        own = result.own
        assert own is not None
        assert result.l0[0] <= own.l0[0]
        found = trace["final"][row].any()  # where nothing is found foolbox returns a black image
        assert own.success[0] == found
        if found:
            assert own.l0[0] == trace["l0"][row]
            same(own.x_adv[0], trace["final"][row])
    already = attack.run(net, net.x[5:], net.y[5:])
    assert [already.l0.item(), already.forwards.item(), already.backwards.item()] == [0, 1, 0]


def test_without_abort_every_round_is_full():
    net = TinyNet("conv")
    attack = sz.get("ead", steps=7, binary_search_steps=3, abort_early=False)
    result = attack.run(net, net.x[:1], net.y[:1])
    assert result.backwards.tolist() == [21]


def test_confidence_asks_for_a_margin():
    net = TinyNet("rgb")
    own = sz.get("ead", steps=100, confidence=0.5).run(net, net.x[:5], net.y[:5]).own
    assert own is not None
    assert own.success.any()
    assert (own.margin[own.success] <= -0.5).all()
