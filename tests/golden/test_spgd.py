"""sPGD: a plain form of the reference, held against its recorded queries; ours, held against the plain form."""

import pytest
import torch
import torch.nn.functional as F

import sigmazero as sz
from tests.helpers.networks import TinyNet
from tests.helpers.traces import CORRECT, normal, recorded, same, search, uniform


def largest(values, k):
    return torch.zeros(values.shape, dtype=torch.bool).index_fill(0, values.topk(k).indices, True)


def plain(model, x, y, magnitude, draw, *, name, mode, steps=30, total=False):
    """Return all points of a run on one input with k = 4, and how many masks were drawn: `draw(step, how many before)`.

    `total` counts idle steps that are not in a row, too.
    """
    x = x.flatten(1) if mode == "pixel" else x.flatten()[None]
    shape, sites = (1, *model.x.shape[1:]), x.shape[1]
    p, u, drawn, idle, points = magnitude.view_as(x), draw(0, 0), 1, 0, []
    g_p, g_u = torch.zeros_like(x), torch.zeros_like(x[0])
    for step in range(steps + 1):
        if idle >= 3:
            u, drawn, idle = draw(step, drawn), drawn + 1, 0
        before = largest(u, 4)
        if g_u.norm() >= 2e-10:
            u = u - 0.25 * sites**0.5 / (g_u.norm() + 1e-10) * g_u
        p = p + 0.25 * g_p.sign()
        p = torch.maximum(torch.minimum(p, 1 - x), -x)
        σ = u.sigmoid()
        M = largest(σ, 4)
        point = torch.where(M, x + p, x).view(shape).requires_grad_()
        points.append(point.detach()[0])
        logits = model(point)
        if logits.argmax() != y:
            break
        (g,) = torch.autograd.grad(F.cross_entropy(logits, y[None]), point)
        g = g.view_as(x)
        g_p, g_u = g * (M if name == "spgd-projected" else σ), -(g * p).sum(0) * σ * (1 - σ)
        if step:
            idle = idle + 1 if torch.equal(largest(u, 4), before) else idle if total else 0
    return torch.stack(points), drawn


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("mode", ["pixel", "feature"])
@pytest.mark.parametrize("name", ["spgd-projected", "spgd-unprojected"])
def test_the_plain_form_asks_every_query_of_the_reference(name, mode, kind):
    net, most = TinyNet(kind), 0
    trace = recorded(f"spgd_{name[5:].removesuffix('ected')}_{mode}_k4_t30", kind)
    for row in CORRECT:
        masks = trace["mask_draws"][row].flatten(1)
        given = net.x[row], net.y[row], trace["init_perturb"][row], lambda _, n, masks=masks: masks[n]
        points, drawn = plain(net, *given, name=name, mode=mode)
        asked = int(trace["n_forward"][row])
        assert trace["stable_queries"][row] == asked
        same(points, trace["queries"][row, 1:asked])
        fooled = net(points[-1:]).argmax() != net.y[row]
        assert fooled == trace["success"][row]
        if fooled:
            same(points[-1], trace["final"][row])
        # A mask redrawn after the last step is not used, here not even drawn.
        assert trace["n_mask_draws"][row] - 1 <= drawn <= trace["n_mask_draws"][row]
        most = max(most, drawn)
    assert most > 1


@pytest.mark.parametrize("counts", ["consecutive", "total"])
@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("mode", ["pixel", "feature"])
@pytest.mark.parametrize("name", ["spgd-projected", "spgd-unprojected"])
def test_every_query_is_that_of_the_plain_form(name, mode, kind, counts):
    net, most = TinyNet(kind), 0
    attack = sz.get(name, steps=30, patience_counts=counts)
    for row in CORRECT:
        ours, slopes, result = search(attack, net, net.x, net.y, row, budget=4, unit=mode)
        sites = 36 if mode == "pixel" and kind == "rgb" else net.x[0].numel()
        theirs, drawn = plain(
            net,
            net.x[row],
            net.y[row],
            2 * uniform(row, 0, tuple(net.x.shape[1:])) - 1,
            lambda step, _, row=row, sites=sites: normal(row, step, (sites,), stream=1),
            name=name,
            mode=mode,
            total=counts == "total",
        )
        same(ours, theirs)
        assert slopes.all()
        assert result.backwards[0] == len(ours)
        assert result.success[0] == bool(net(ours[-1:]).argmax() != net.y[row])
        if result.success[0]:
            assert torch.equal(result.x_adv[0], ours[-1])
        most = max(most, drawn)
    assert most > 1


def test_a_mask_that_never_moves_is_redrawn_after_every_third_idle_step():
    net = TinyNet("conv")

    def flat(x):
        return net(net.x[:1]) + 0 * x.flatten(1).sum(1, keepdim=True)

    with pytest.warns(UserWarning, match="SZ004"):
        points = search(sz.get("spgd-unprojected", steps=8), flat, net.x, net.y, 0, budget=4).points
    masks = points != net.x[0]
    assert [j for j in range(1, 9) if not torch.equal(masks[j], masks[j - 1])] == [4, 7]


def test_an_adversarial_start_ends_the_row():
    net = TinyNet("conv")
    x, y = net.x[:1].repeat(200, 1, 1, 1), net.y[:1].repeat(200)
    result = sz.get("spgd-unprojected", steps=1).run(net, x, y, budget=30)
    assert (result.step_found == 0).any()
    assert (result.backwards[result.step_found == 0] == 1).all()


@pytest.mark.parametrize("unit", ["feature", "pixel"])
def test_sites_that_may_not_change_take_no_part_of_the_budget(unit):
    net = TinyNet("rgb")
    mask = torch.zeros(3, 6, 6, dtype=torch.bool)
    mask[:, 2, :] = True
    for row in range(5):
        points = search(
            sz.get("spgd-unprojected", steps=9), net, net.x, net.y, row, mask=mask, unit=unit, budget=4
        ).points
        changed = points != net.x[row]
        assert (changed <= mask).all()
        assert ((changed.any(1) if unit == "pixel" else changed).flatten(1).sum(1) == 4).all()
