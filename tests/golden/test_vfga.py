"""VFGA: every query of the reference, given its draws, and its outcomes over many seeds."""

import pytest
import torch

import sigmazero as sz
from sigmazero.attacks.vfga import VFGA
from sigmazero.core.inputs import make_problem
from sigmazero.core.oracle import Oracle
from tests.golden.recorded import BATCH, Queries, rank_sum_z, recorded
from tests.helpers.networks import TinyNet, linear_problem


class Everything:
    """Notes every point asked for, per sample, candidates after the point with the gradient."""

    def __init__(self, monkeypatch) -> None:
        self.points: dict[int, list[torch.Tensor]] = {}
        grad, logits = Oracle.value_and_grad, Oracle.logits

        def note(oracle, points):
            for row, sample in enumerate(oracle.problem.ids.tolist()):
                self.points.setdefault(sample, []).extend(points[row].clone())

        def graded(oracle, x, loss):
            note(oracle, x[:, None])
            return grad(oracle, x, loss)

        def asked(oracle, x, copies=None):
            note(oracle, x)
            return logits(oracle, x, copies)

        monkeypatch.setattr(Oracle, "value_and_grad", graded)
        monkeypatch.setattr(Oracle, "logits", asked)


@pytest.mark.parametrize("kind", ["conv", "rgb"])
def test_every_query_is_the_references(kind, monkeypatch):
    net, trace = TinyNet(kind), recorded("trace_vfga", kind)
    monkeypatch.setattr(VFGA, "_draw", lambda self, i, p: trace["randn"][p.ids, int(i)])
    seen = Everything(monkeypatch)
    result = sz.get("vfga").run(net, net.x, net.y, batch_size=BATCH)
    assert result.own is not None
    for row in range(5):
        saved = int(trace["n_saved"][row])
        ours = torch.stack(seen.points[row])
        assert len(ours) == trace["n_forward"][row]
        torch.testing.assert_close(ours[:saved], trace["queries"][row, :saved], rtol=0, atol=1e-9)
        # The clean check and a verification each of the sparsest point and of the method's own.
        assert result.forwards[row] == trace["n_forward"][row] + 3
        assert result.backwards[row] == trace["n_backward"][row]
        assert result.l0[row] == trace["l0"][row]
        torch.testing.assert_close(result.own.x_adv[row], trace["final"][row], rtol=0, atol=1e-9)
    assert result.l0[5] == 0  # the reference changes a feature of an input that is already wrong


@pytest.mark.parametrize("kind", ["conv", "rgb"])
def test_outcomes_are_distributed_like_the_references(kind):
    net, theirs = TinyNet(kind), recorded("stats_vfga", kind)
    seeds = 100
    x, y = (t[:5].repeat_interleave(seeds, 0) for t in (net.x, net.y))
    result = sz.get("vfga").run(net, x, y)
    assert result.success.all()
    for row in range(5):
        rows = slice(row * seeds, (row + 1) * seeds)
        assert abs(rank_sum_z(result.l0[rows], theirs["l0"][row])) < 3, row
        assert abs(rank_sum_z(result.backwards[rows], theirs["n_backward"][row])) < 3, row


def test_features_that_may_not_change_are_never_chosen():
    model, x, y = linear_problem((6,), 5, seed=1)
    mask = torch.tensor([False, True, False, True, True, False])
    oracle = Oracle(model, make_problem(x, y, mask=mask))
    attack = VFGA()
    for G in (torch.zeros_like(x), torch.ones_like(x), -torch.ones_like(x)):
        for chosen in attack._features(oracle.problem.x, G, oracle.problem):
            assert mask[chosen].all()


def test_a_row_that_cannot_move_ends():
    """Constant probabilities: no gradient, and the first feature is at the lower face or at the upper one."""
    with pytest.warns(UserWarning, match="SZ004"):
        result = sz.get("vfga", steps=100).run(
            lambda x: x[:, :2] * 0 + torch.tensor([1.0, 0.0]), torch.rand(2, 5), torch.zeros(2).long()
        )
    assert not result.success.any()
    assert (result.backwards <= 5).all()


def test_a_feature_is_changed_once(monkeypatch):
    """Whatever it still promises: the first feature has by far the steepest gradient, and room for more."""
    steep = torch.tensor([8.0, 1.0, 1.0, 1.0, 1.0], dtype=torch.float64)

    def model(x):
        own = (x * steep).sum(1, keepdim=True)
        return torch.cat([own, 0 * own - 20], 1)

    monkeypatch.setattr(VFGA, "_draw", lambda self, i, p: p.x.new_full((len(p), 2, self.samples), 0.1))
    seen = Queries(monkeypatch, "value_and_grad")
    x = torch.full((1, 5), 0.5, dtype=torch.float64)
    result = sz.get("vfga").run(model, x, torch.tensor([0]))
    assert result.backwards.tolist() == [5]  # then no feature is left
    for step, point in enumerate(seen.points[0]):
        assert torch.equal(point != x[0], torch.arange(5) < step)
        assert torch.equal(point[:step], torch.full((step,), 0.45, dtype=torch.float64))
