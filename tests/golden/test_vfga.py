"""VFGA: a plain form of the reference, held against its recorded queries; ours, held against the plain form."""

import pytest
import torch

import sigmazero as sz
from tests.helpers.networks import TinyNet, linear_problem
from tests.helpers.traces import CORRECT, normal, rank_sum_z, recorded, same, search


def plain(model, x, y, draws):
    """Return all points of a run on one input and the answer; `draws` has normal numbers (2, samples) per step."""
    a, points = x, []
    for drawn in draws:
        point = a.clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(point[None]).softmax(1)[0, y], point)
        unused = a == x
        up = torch.where(unused, -(1 - a) * slope, -torch.inf).argmax()
        down = torch.where(unused, -a * slope, torch.inf).argmin()
        candidates = []
        moves = (up, (1 - a).flatten()[up]), (down, -a.flatten()[down])
        for (where, room), numbers in zip(moves, drawn, strict=True):
            for amount in numbers.abs() * room:
                candidate = a.clone()
                candidate.view(-1)[where] += amount
                candidates.append(candidate.clamp(0, 1))
        tried = torch.stack(candidates)
        points += [a[None], tried]
        probabilities = model(tried).softmax(1)
        fooled = probabilities.argmax(1) != y
        best = (probabilities[:, y] - fooled.double()).argmin()
        a = tried[best]
        if fooled[best]:
            return torch.cat(points), a
    return torch.cat(points), x


@pytest.mark.parametrize("kind", ["conv", "rgb"])
def test_the_plain_form_asks_every_query_of_the_reference(kind):
    net, trace = TinyNet(kind), recorded("trace_vfga", kind)
    for row in CORRECT:
        points, final = plain(net, net.x[row], net.y[row], trace["randn"][row])
        saved = int(trace["n_saved"][row])
        assert len(points) == trace["n_forward"][row]
        same(points[:saved], trace["queries"][row, :saved])
        same(final, trace["final"][row])
        assert (final != net.x[row]).sum() == trace["l0"][row]


@pytest.mark.parametrize("kind", ["conv", "rgb"])
def test_every_query_is_that_of_the_plain_form(kind):
    net = TinyNet(kind)
    for row in CORRECT:
        ours, slopes, result = search(sz.get("vfga"), net, net.x, net.y, row)
        theirs, final = plain(net, net.x[row], net.y[row], [normal(row, i, (2, 10)) for i in range(60)])
        same(ours, theirs)
        assert torch.equal(slopes, torch.arange(len(ours)) % 21 == 0)
        assert result.backwards[0] == slopes.sum()
        assert result.own is not None
        same(result.own.x_adv[0], final)
        assert result.l0[0] == (final != net.x[row]).sum()


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
    for row in range(5):
        points = search(sz.get("vfga"), model, x, y, row, mask=mask).points
        assert ((points != x[row]) <= mask).all()
        assert (points != x[row]).any()


def test_a_row_that_cannot_move_ends():
    """Constant probabilities: no gradient, and the first feature is at the lower face or at the upper one."""
    with pytest.warns(UserWarning, match="SZ004"):
        result = sz.get("vfga", steps=100).run(
            lambda x: x[:, :2] * 0 + torch.tensor([1.0, 0.0]), torch.rand(2, 5), torch.zeros(2).long()
        )
    assert not result.success.any()
    assert (result.backwards <= 5).all()


def test_a_feature_is_changed_once():
    """Whatever it still promises: the first feature has by far the steepest gradient, and room for more."""
    steep = torch.tensor([8.0, 1.0, 1.0, 1.0, 1.0], dtype=torch.float64)

    def model(x):
        own = (x * steep).sum(1, keepdim=True)
        return torch.cat([own, 0 * own - 20], 1)

    x = torch.full((1, 5), 0.5, dtype=torch.float64)
    points, slopes, result = search(sz.get("vfga", samples=1), model, x, torch.tensor([0]), 0)
    assert result.backwards.tolist() == [5]  # then no feature is left
    kept = points[slopes]
    for step, point in enumerate(kept):
        assert torch.equal(point != x[0], torch.arange(5) < step)
        assert torch.equal(point[: max(step - 1, 0)], kept[step - 1][: max(step - 1, 0)])
    assert ((kept[1:, 0] > 0) & (kept[1:, 0] < 0.5)).all()
