"""SparseFool: the outer points of torchattacks, and the walk of the published form on a linear model."""

import pytest
import torch

import sigmazero as sz
from tests.helpers.networks import TinyNet, linear_problem
from tests.helpers.traces import CORRECT, recorded, same, search, walk_to_plane


@pytest.mark.parametrize("kind", ["conv", "rgb"])
def test_outer_points_are_the_references(kind):
    """Each round asks for the gradient at a scaled point, then about the point that the walk leads to."""
    net, trace = TinyNet(kind), recorded("sparsefool_torchattacks_20", kind)
    for row in CORRECT:
        assert trace["outer_stable"][row]
        points, slopes, result = search(sz.get("sparsefool-paper"), net, net.x, net.y, row)
        at = 0
        # The clean input is the first of the reference's tests; the driver makes it.
        rounds = int(trace["n_scaled"][row])
        assert trace["n_outer_checks"][row] == rounds + 1
        for scaled, check in zip(trace["scaled_points"][row, :rounds], trace["outer_checks"][row, 1:], strict=False):
            found = slopes & ((points - scaled).abs().flatten(1).amax(1) < 1e-9) & (torch.arange(len(points)) >= at)
            assert found.any()
            at = int(found.int().argmax()) + 2
            same(points[at - 1], check)
            assert not slopes[at - 1]
        assert at == len(points)  # no round beyond the reference's last
        assert result.own is not None
        same(result.own.x_adv[0], trace["final"][row])
        assert result.own.success[0] == trace["success"][row]
        assert result.own.l0[0] == trace["l0"][row]


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
    w, z = model.weight.detach(), model(x).detach()
    for row in range(6):
        points = search(sz.get("sparsefool", steps=1), model, x, y, row).points
        others = [k for k in range(4) if k != y[row]]
        gaps = {k: (float(z[row, y[row]] - z[row, k]), w[k] - w[y[row]]) for k in others}
        gap, normal = min(gaps.values(), key=lambda pair: pair[0] / float(pair[1].norm()))
        r = gap / normal.norm() ** 2 * normal
        walked = walk_to_plane(x[row], normal / normal.norm(), x[row] + 3 * r)
        same(points[-1], (x[row] + 1.02 * (walked - x[row])).clamp(0, 1))
