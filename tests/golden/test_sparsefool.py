"""SparseFool: the outer points of torchattacks, and the walk to the plane one coordinate at a time."""

import pytest
import torch

import sigmazero as sz
from sigmazero.attacks._deepfool import walk_to_plane
from sigmazero.attacks.sparsefool import SparseFool
from tests.golden.recorded import BATCH, recorded
from tests.helpers.networks import TinyNet, linear_problem


@pytest.mark.parametrize("kind", ["conv", "rgb"])
def test_outer_points_are_the_references(kind, monkeypatch):
    net, trace = TinyNet(kind), recorded("sparsefool_torchattacks_20", kind)
    scaled: dict[int, list[torch.Tensor]] = {}
    normal, step = SparseFool._normal, SparseFool.step
    tested: dict[int, list[torch.Tensor]] = {}

    def noted(self, part, at, reached, *, fixed):
        for row, sample in enumerate(part.problem.ids.tolist()):
            scaled.setdefault(sample, []).append(at[row].clone())
        return normal(self, part, at, reached, fixed=fixed)

    def stepped(self, i, s, oracle):
        after = step(self, i, s, oracle)
        for row, sample in enumerate(oracle.problem.ids.tolist()):
            tested.setdefault(sample, []).append(after.own[row].clone())
        return after

    monkeypatch.setattr(SparseFool, "_normal", noted)
    monkeypatch.setattr(SparseFool, "step", stepped)
    result = sz.get("sparsefool-paper").run(net, net.x, net.y, batch_size=BATCH)
    assert result.own is not None
    for row in range(5):
        assert trace["outer_stable"][row]
        n = int(trace["n_scaled"][row])
        assert len(scaled[row]) == n
        torch.testing.assert_close(torch.stack(scaled[row]), trace["scaled_points"][row, :n], rtol=0, atol=1e-9)
        # The clean input is the first of the reference's tests; the driver makes it.
        checks = trace["outer_checks"][row, 1 : int(trace["n_outer_checks"][row])]
        torch.testing.assert_close(torch.stack(tested[row]), checks, rtol=0, atol=1e-9)
        torch.testing.assert_close(result.own.x_adv[row], trace["final"][row], rtol=0, atol=1e-9)
        assert result.own.success[row] == trace["success"][row]
        assert result.own.l0[row] == trace["l0"][row]


def one_by_one(start, normal, through, lower, upper):
    """The walk as the method describes it, for one sample."""
    now = start.clone()
    side = torch.sign(normal @ (now - through))
    left = set(normal.nonzero().flatten().tolist())
    while torch.sign(normal @ (now - through)) == side and left:
        j = max(sorted(left), key=lambda k: abs(float(normal[k])))
        amount = max(float((normal @ (now - through) + 0.001 * side).abs() / normal[j].abs()), 1e-4)
        now[j] = (now[j] + amount * normal[j].sign()).clamp(lower[j], upper[j])
        left.remove(j)
    return now


@pytest.mark.parametrize("reach", [0.2, 1.0, 5.0, -0.1, -1.0])
def test_walk_in_one_go_is_the_walk_by_coordinates(reach):
    """Planes near, far, out of reach, and behind (where every coordinate is pushed)."""
    g = torch.Generator().manual_seed(0)
    start, normal = (torch.rand(30, 12, generator=g, dtype=torch.float64) for _ in range(2))
    normal = normal - 0.5
    normal[:, 3] = 0
    normal = normal / normal.norm(dim=1, keepdim=True)
    through = start + reach * normal
    lower, upper = torch.zeros_like(start), torch.ones_like(start)
    ours = walk_to_plane(start, normal, through, lower, upper)
    for row in range(len(start)):
        theirs = one_by_one(start[row], normal[row], through[row], lower[row], upper[row])
        torch.testing.assert_close(ours[row], theirs, rtol=0, atol=1e-12)


def test_no_gradient_no_move_no_nan():
    x = torch.rand(3, 5, dtype=torch.float64)
    with pytest.warns(UserWarning, match="SZ004"):
        result = sz.get("sparsefool", steps=2).run(
            lambda v: v[:, :2] * 0 + torch.tensor([1.0, 0.0]), x, torch.zeros(3).long()
        )
    assert not result.success.any()
    assert result.own is not None
    assert torch.equal(result.own.x_adv, x)
    assert (result.outcome == sz.Outcome.NOT_FOUND).all()


def test_published_variant_on_a_linear_model():
    """One DeepFool step ends on the nearest boundary, so the first walk and its test point follow by hand."""
    model, x, y = linear_problem((12,), 6, seed=5)
    tested = []

    def watched(points):
        tested.append(points.detach().clone())
        return model(points)

    sz.get("sparsefool", steps=1).run(watched, x, y, batch_size=6)
    w, z = model.weight.detach(), model(x).detach()
    for row in range(6):
        others = [k for k in range(4) if k != y[row]]
        gaps = {k: (float(z[row, y[row]] - z[row, k]), w[k] - w[y[row]]) for k in others}
        gap, normal = min(gaps.values(), key=lambda pair: pair[0] / float(pair[1].norm()))
        r = gap / normal.norm() ** 2 * normal
        walked = one_by_one(x[row], normal / normal.norm(), x[row] + 3 * r, torch.zeros(12), torch.ones(12))
        point = (x[row] + 1.02 * (walked - x[row])).clamp(0, 1)
        closest = min(float((points - point).abs().amax(1).min()) for points in tested)
        assert closest < 1e-9
