"""Branch and bound over supports, against brute force on tiny networks; and the bounds, against sampling."""

from dataclasses import replace
from functools import cache
from itertools import combinations

import pytest
import torch
from torch import nn

from sigmazero.certifier import exact
from sigmazero.certifier.dense import DOUBLE, FREE, OPEN, STAYS, Neighbourhood, matrices

NEVER = torch.full((2,), torch.inf, dtype=DOUBLE)  # no lead is enough


def tiny(seed, convolutional=False):
    torch.manual_seed(seed)
    if convolutional:
        convolutions = (nn.Conv2d(1, 3, 2), nn.ReLU(), nn.Conv2d(3, 2, 2, padding=1), nn.ReLU())
        model = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(12, 3))
    else:
        linear = (nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU())
        model = nn.Sequential(nn.Flatten(), *linear, nn.Linear(6, 3))
    model.requires_grad_(False)
    for layer in model:
        if isinstance(layer, nn.Linear | nn.Conv2d):
            layer.weight *= 2.5
    x = torch.rand(1, 2, 3)
    return model, x, int(model(x[None]).argmax())


def least_margin(local, sites, steps):
    """The lowest lead on a grid over all values of some features, ends included."""
    values = torch.linspace(0, 1, steps, dtype=DOUBLE)
    grid = torch.cartesian_prod(*[values] * len(sites)).view(-1, len(sites))
    points = local.x.repeat(len(grid), 1)
    points[:, list(sites)] = grid
    return float(local.margins(points).min())


@cache
def solved(seed):
    return exact.solve(*tiny(seed, convolutional=seed % 3 == 0))


@pytest.mark.parametrize("seed", range(12))
def test_the_fewest_changes_are_those_of_brute_force(seed):
    model, x, y = tiny(seed, convolutional=seed % 3 == 0)
    found = solved(seed)
    local = Neighbourhood(matrices(model, (1, 2, 3)), x, y)
    for changes in range(1, 4):
        steps = {1: 2001, 2: 41, 3: 11}[changes]
        least = min(least_margin(local, sites, steps) for sites in combinations(range(6), changes))
        if least < 0:
            assert found.lower <= changes
        if changes < found.lower:
            assert least > 0
    assert found.exact or found.upper == 7
    if found.witness is not None:
        assert int((found.witness != x).sum()) == found.upper
        assert int(model(found.witness[None]).argmax()) != y
        assert float(found.witness.min()) >= 0
        assert float(found.witness.max()) <= 1


def test_there_are_many_answers_among_them():
    answers = {solved(seed).upper for seed in range(12)}
    assert {1, 2} < answers


def nodes(local, count, generator):
    state = torch.randint(0, 3, (count, 6), generator=generator).to(torch.int8)
    ends = torch.rand(2, count, 6, generator=generator, dtype=DOUBLE).sort(0).values
    lower, upper = torch.where(state == FREE, ends[0], 0.0), torch.where(state == FREE, ends[1], 1.0)
    root = local.root(0).take(torch.zeros(count).long())
    left = torch.randint(0, 4, (count,), generator=generator)
    return replace(root, state=state, lower=lower, upper=upper, left=left)


def drawn(local, node, count, generator):
    """Points of one node: free features anywhere in their interval, often at an end, and few open ones anywhere."""
    values = torch.rand(count, 6, generator=generator, dtype=DOUBLE)
    values = torch.where(torch.rand(count, 6, generator=generator) < 0.5, values.round(), values)
    free = node.lower + values * (node.upper - node.lower)
    rank = torch.where(node.state == OPEN, torch.rand(count, 6, generator=generator), 2.0).argsort(1).argsort(1)
    changed = (node.state == OPEN) & (rank < node.left)
    return torch.where(node.state == FREE, free, torch.where(changed, values, local.x))


def violations(seeds):
    wrong = 0
    for seed in seeds:
        model, x, y = tiny(seed, convolutional=seed % 3 == 0)
        local = Neighbourhood(matrices(model, (1, 2, 3)), x, y)
        generator = torch.Generator().manual_seed(seed)
        some = nodes(local, 20, generator)
        least = local.bound(some, NEVER)[0].lead
        for k in range(20):
            node = some.take(torch.tensor(k))
            wrong += int((local.margins(drawn(local, node, 200, generator)) < least[k] - 1e-9).any())
    return wrong


def test_no_point_is_below_its_bound():
    assert violations(range(9)) == 0


def test_what_is_known_of_a_node_is_used_for_its_parts():
    """Bounds of parts that begin with their node's: no point is below them, and they are no lower than afresh."""
    model, x, y = tiny(4)
    local, generator = Neighbourhood(matrices(model, (1, 2, 3)), x, y), torch.Generator().manual_seed(0)
    whole, slopes = local.bound(nodes(local, 30, generator), NEVER)
    parted = exact.split(
        local,
        whole.take((whole.left > 0) & (whole.state == OPEN).any(1)),
        slopes[:, 0][(whole.left > 0) & (whole.state == OPEN).any(1)],
    )
    assert parted is not None
    least = local.bound(parted, NEVER)[0].lead
    assert (least >= parted.lead).all()
    for k in range(len(parted.left)):
        points = drawn(local, parted.take(torch.tensor(k)), 100, generator)
        assert (local.margins(points) >= least[k] - 1e-9).all()


def test_a_wrong_relaxation_is_noticed(monkeypatch):
    """The line above a ReLU without its shift: the check above must see it."""
    from sigmazero.certifier import dense

    right = dense._relaxed
    monkeypatch.setattr(dense, "_relaxed", lambda low, high: right(low, high)._replace(shift=torch.zeros_like(low)))
    assert violations(range(3)) > 0


def test_children_hold_all_points_of_a_node():
    model, x, y = tiny(1)
    local = Neighbourhood(matrices(model, (1, 2, 3)), x, y)
    generator = torch.Generator().manual_seed(0)
    some, slopes = local.bound(nodes(local, 40, generator), NEVER)
    for k in range(40):
        node = some.take(slice(k, k + 1))
        if not (node.state == FREE).any() and not (int(node.left) and (node.state == OPEN).any()):
            continue
        children = exact.split(local, node, slopes[k : k + 1, 0])
        assert children is not None
        for point in drawn(local, some.take(torch.tensor(k)), 50, generator):
            assert held(local, children, point).any()


def held(local, some, point):
    stays = ((some.state != STAYS) | (point == local.x)).all(1)
    inside = ((some.state != FREE) | ((point >= some.lower) & (point <= some.upper))).all(1)
    return stays & inside & (((some.state == OPEN) & (point != local.x)).sum(1) <= some.left)


def test_matrices_answer_as_the_network_does():
    for seed in (0, 1):
        model, x, y = tiny(seed, convolutional=seed == 0)
        points = torch.rand(50, 1, 2, 3)
        logits = model(points)
        other = [k for k in range(3) if k != y]
        local = Neighbourhood(matrices(model, (1, 2, 3)), x, y)
        apart = (local.margins(points.flatten(1).to(DOUBLE)) - (logits[:, [y]] - logits[:, other])).abs().amax(0)
        assert (apart < local.slack(6)).all()  # all six features may have changed
        assert (local.slack(1) <= local.slack(6)).all()
        assert float(local.slack(6).max()) < 1e-3


def test_what_is_wrong_already_needs_no_change():
    model, x, y = tiny(1)
    found = exact.solve(model, x, (y + 1) % 3)
    assert (found.lower, found.upper, found.nodes) == (0, 0, 0)


def test_a_limit_leaves_an_interval():
    model, x, y = tiny(7)
    whole = exact.solve(model, x, y)
    assert whole.exact
    far = torch.where(x < 0.5, 1.0, 0.0)
    found = exact.solve(model, x, y, witness=far, most=0)
    assert (found.lower, found.upper) == (1, 6)


def test_other_layers_are_named():
    with pytest.raises(ValueError, match="Tanh"):
        matrices(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), (2,))
