"""Every query of foolbox's EAD, reproduced one input at a time: here each sample aborts its rounds by itself."""

import pytest
import torch

import sigmazero as sz
from sigmazero.attacks.ead import EAD
from tests.golden.recorded import BATCH, Queries
from tests.golden.test_fmn import load
from tests.golden.test_sigma_zero import CORRECT
from tests.helpers.networks import TinyNet

RUNS = {
    "ead_bs3_EN": ("elastic-net", 3, 1e-3),
    "ead_bs3_L1": ("l1", 3, 1e-3),
    "ead_bs5_EN_c1": ("elastic-net", 5, 1.0),
    "ead_bs9_EN": ("elastic-net", 9, 1e-3),
    "ead_bs9_L1": ("l1", 9, 1e-3),
}


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("run", RUNS)
def test_every_query_is_foolboxs(run, kind, monkeypatch):
    rule, rounds, const = RUNS[run]
    net, trace = TinyNet(kind), load(run, kind)
    gradients, checks = (Queries(monkeypatch, method) for method in ("value_and_grad", "logits"))
    attack = sz.get("ead", steps=30, rule=rule, binary_search_steps=rounds, initial_const=const)
    result = attack.run(net, net.x, net.y, batch_size=BATCH)
    own = result.own
    assert own is not None
    for row in CORRECT:
        assert trace["stable_queries"][row] == trace["n_forward"][row]
        with_gradient = trace["query_backwards"][row, : trace["n_saved"][row]] == 1
        step = with_gradient.cumsum(0) - 1  # foolbox skips the check in the step that aborts a round
        ours = torch.where(
            with_gradient[:, None, None, None],
            torch.stack(gradients.points[row])[step],
            torch.stack(checks.points[row])[step],
        )
        torch.testing.assert_close(ours, trace["queries"][row, : len(ours)], rtol=0, atol=1e-9)
        steps = int(trace["n_backward"][row])
        aborted = 2 * steps - int(trace["n_forward"][row])
        # Ours beyond the search: the clean check, the verification of both answers, a check in each aborting step.
        extra = 1 + int(result.success[row]) + int(own.success[row]) + aborted
        assert result.forwards[row] == trace["n_forward"][row] + extra
        assert result.backwards[row] == steps
        assert result.l0[row] <= own.l0[row]
        if not trace["final"][row].any():  # nothing found: foolbox returns a black image, we report failure
            assert not own.success[row]
            continue
        assert own.success[row]
        assert own.l0[row] == trace["l0"][row]
        torch.testing.assert_close(own.x_adv[row], trace["final"][row], rtol=0, atol=1e-9)
    assert [result.l0[5].item(), result.forwards[5].item(), result.backwards[5].item()] == [0, 1, 0]


def test_without_abort_every_round_is_full():
    net = TinyNet("conv")
    attack = sz.get("ead", steps=7, binary_search_steps=3, abort_early=False)
    result = attack.run(net, net.x[:1], net.y[:1])
    assert result.backwards.tolist() == [21]


def test_the_last_of_many_rounds_repeats_the_smallest_successful_weight():
    """Of ten rounds or more the last runs with `hi`, so its points are those of an earlier round."""
    c, inf = torch.tensor([4.0, 4.0]), torch.inf
    lo, hi = torch.tensor([1.0, 1.0]), torch.tensor([2.0, inf])
    many, few = EAD(binary_search_steps=10), EAD()
    assert many.next_const(c, lo, hi, torch.tensor([9, 9])).tolist() == [2.0, 1e10]
    assert many.next_const(c, lo, hi, torch.tensor([8, 8])).tolist() == [1.5, 40.0]
    assert few.next_const(c, lo, hi, torch.tensor([8, 8])).tolist() == [1.5, 40.0]


def test_confidence_asks_for_a_margin():
    net = TinyNet("rgb")
    own = sz.get("ead", steps=100, confidence=0.5).run(net, net.x[:5], net.y[:5]).own
    assert own is not None
    assert own.success.any()
    assert (own.margin[own.success] <= -0.5).all()
