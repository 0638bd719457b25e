"""PGD-l0: a plain form of the reference, held against its recorded queries; ours, held against the plain form."""

import pytest
import torch
import torch.nn.functional as F

import sigmazero as sz
from tests.helpers.networks import TinyNet
from tests.helpers.traces import CORRECT, rank_sum_z, recorded, same, search, uniform


def plain(model, x, y, k, start, noise, grouped):
    """Return all points of one run on one input, given the start's perturbation and the noise of each later step."""
    δ, points = start, []
    for each in (None, *noise):
        δ = δ if each is None else δ + 1e-12 * (each - 0.5)
        inside = (x + δ).clamp(0, 1)
        gain = δ**2 - (x + δ - inside) ** 2
        gain = gain.sum(0, keepdim=True).expand_as(x) if grouped else gain
        kept = torch.zeros(gain[:1].numel() if grouped else gain.numel(), dtype=torch.bool)
        kept[gain.flatten()[: len(kept)].topk(k).indices] = True
        point = torch.where(kept.view(-1, *x.shape[1:]), inside, x).requires_grad_()
        points.append(point.detach())
        (g,) = torch.autograd.grad(F.cross_entropy(model(point[None]), y[None]), point)
        δ = points[-1] - x + 120000 / 255 * g / (1e-10 + g.abs().sum())
    return torch.stack(points)


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("mode", ["pixel", "feature"])
def test_the_plain_form_asks_every_query_of_the_reference(mode, kind):
    net, trace = TinyNet(kind), recorded(f"trace_pgd0_{mode}_k4_n40", kind)
    for row in range(6):
        draws = trace["init_uniform"][row], trace["noise_uniform01"][row, :38]
        points = plain(net, net.x[row], net.y[row], 4, *draws, grouped=mode == "pixel")
        assert trace["stable_queries"][row] == 40  # the first is the clean input
        same(points, trace["queries"][row, 1:])
        fooled = (net(points).argmax(1) != net.y[row]).nonzero()
        if len(fooled):
            same(points[fooled[-1, 0]], trace["final"][row])


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("mode", ["pixel", "feature"])
@pytest.mark.parametrize("margin", [0.0, 4.0])
def test_every_query_is_that_of_the_plain_form(margin, mode, kind):
    """A row ends with its first success within the budget; with a margin to reach it goes on, as in the reference."""
    net, compared = TinyNet(kind), 0
    attack = sz.get("pgd-l0", steps=39, restarts=1, group="pixel" if mode == "pixel" else "unit")

    def model(x):
        return net(x) + margin * F.one_hot(net.y[row], net(x).shape[1])

    for row in CORRECT:
        ours, slopes, result = search(attack, net, net.x, net.y, row, budget=4, margin=margin)
        draws = [uniform(row, i, tuple(net.x.shape[1:])) for i in range(39)]
        theirs = plain(model, net.x[row], net.y[row], 4, draws[0] - net.x[row], draws[1:], grouped=mode == "pixel")
        same(ours, theirs[: len(ours)])
        assert slopes.all()
        compared += len(ours)
        fooled = (model(ours).argmax(1) != net.y[row]).nonzero()
        assert result.own is not None
        assert result.own.l0[0].isfinite() == bool(len(fooled))  # perhaps beyond the budget
        if len(fooled):
            assert torch.equal(result.own.x_adv[0], ours[fooled[-1, 0]])
    assert compared == 195 or margin == 0


def test_pixel_unit_and_pixel_groups_project_alike():
    """Both ask about the same points; a row that counts pixels may end earlier."""
    net = TinyNet("rgb")
    by_unit, by_group = (sz.get("pgd-l0", steps=20, restarts=1, group=group) for group in ("unit", "pixel"))
    for row in CORRECT:
        ours = search(by_unit, net, net.x, net.y, row, budget=4, unit="pixel", margin=4.0).points
        assert torch.equal(ours, search(by_group, net, net.x, net.y, row, budget=4, margin=4.0).points[: len(ours)])
        assert ((ours != net.x[row]).any(1).flatten(1).sum(1) == 4).all()


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("mode", ["pixel", "feature"])
def test_outcomes_are_distributed_like_the_references(mode, kind):
    net, theirs = TinyNet(kind), recorded(f"stats_pgd0_{mode}_k4_n100", kind)
    seeds = 100
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
    assert (result.own.margin < 0).all()
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
