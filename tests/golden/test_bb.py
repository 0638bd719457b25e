"""Brendel & Bethge: the reference's queries as long as its solver is exact, and starting points."""

import pytest
import torch

import sigmazero as sz
from tests.helpers.networks import TinyNet, linear_optimum, linear_problem
from tests.helpers.traces import CORRECT, Recording, recorded, same, search, searches, uniform

RUNS = ["dataset_20", "dataset_60_lr0.1", "uniform_20", "uniform_60_lr0.1"]
OUT_OF_BOX, OUT_OF_RADIUS, CLOSED, DUAL = range(4)  # which way the reference went


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("run", RUNS)
def test_queries_are_the_references_while_its_solver_is_exact(run, kind):
    net, trace = TinyNet(kind), recorded(f"bb_f64_{run}", kind)
    steps, radius = (60, 0.1) if run.endswith("lr0.1") else (20, 1e-3)
    attack = sz.get("bb", steps=steps, radius=radius, radius_batch=1, tolerance=0)
    found = searches(attack, net, net.x[:5], net.y[:5], start=trace["start"][:5])
    for row, (ours, slopes, result) in enumerate(found):
        branch, c = trace["solver_branch"][row], trace["solver_c"][row]
        exact = (branch == CLOSED) | ((branch <= OUT_OF_RADIUS) & (c < 0))
        until = 12 + int(exact.int().cumprod(0).sum())  # the start, 10 halvings, the first step, what follows exactly
        assert len(ours) == trace["n_forward"][row]
        same(ours[:until], trace["queries"][row, :until])
        assert result.backwards[0] == slopes.sum() == trace["n_backward"][row]
        assert result.own is not None
        assert result.success[0] & result.own.success[0]
    if steps == 60:
        # Exact counts of the method as it is, against the reference's count of changes above 1e-4.
        attack = sz.get("bb", steps=steps, radius=radius, radius_batch=1)
        result = attack.run(net, net.x, net.y, start=trace["start"])
        assert result.l0[:5].sum() <= trace["l0_tol1e4"][:5].sum()


def test_every_point_is_counted_exactly():
    """No queried point holds a change that the method would not count."""
    net = TinyNet("rgb")
    points, _, result = search(sz.get("bb-dataset", steps=60), net, net.x, net.y, 0, pool=net.x)
    change = points[-50:].sub(net.x[0]).abs()
    assert ((change == 0) | (change > 1e-4)).all()
    assert result.success.all()


def test_a_row_without_a_start_ends_alone():
    net = TinyNet("conv")
    start = torch.cat([net.x[:1], net.x[[2, 1]]])  # the first row's start is its clean input
    assert net(start).argmax(1)[1] != net.y[1]
    result = sz.get("bb", steps=60).run(net, net.x[:3], net.y[:3], start=start)
    assert result.outcome[0] == sz.Outcome.NO_START
    assert result.forwards[0] == 2
    assert result.success.tolist() == [False, True, bool(net(start).argmax(1)[2] != net.y[2])]


def test_starts_from_noise_are_the_weakest_blend_of_the_grid():
    """Directions are asked about in blocks of 1, 1, 2, 4, …, blends in blocks of 20; then the walk towards x begins."""
    net = TinyNet("conv")
    attack = sz.get("bb", steps=1, directions=50, blends=40)
    for row in CORRECT:
        x, points = net.x[row], search(attack, net, net.x, net.y, row, seed=3).points
        draws = torch.stack([uniform(row, k, (1, 8, 8), seed=3) for k in range(50)])
        blocks = [0, 1, 2, 4, 8, 16, 32, 50]
        far = int((net(draws).argmax(1) != net.y[row]).int().argmax())
        asked = next(block for block in blocks if block > far)
        same(points[:asked], draws[:asked])
        levels = torch.arange(1, 41, dtype=torch.float64)[:, None, None, None] / 40
        blends = torch.lerp(x, draws[far], levels)
        weakest = int((net(blends).argmax(1) != net.y[row]).int().argmax())
        blended = 20 if weakest < 20 else 40
        same(points[asked : asked + blended], blends[:blended])
        start = blends[weakest]
        same(points[asked + blended], torch.where((start - x).abs() < 0.5, start, x))


@pytest.mark.filterwarnings("ignore:SZ004")
def test_a_pool_is_asked_in_an_order_drawn_for_each_row_in_blocks_that_double():
    """Until one of another class is met: here the last."""
    net, pool = TinyNet("conv"), torch.rand(9, 1, 8, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for row in CORRECT:
        order = uniform(row, 0, (9,), stream=1, seed=3).argsort()
        last = pool[order[-1:]]

        def model(x, last=last, own=int(net.y[row])):
            known = (x == last).flatten(1).all(1)[:, None]
            return known * torch.eye(5)[(own + 1) % 5] + 0.5 * torch.eye(5)[own] + 0 * x.flatten(1)[:, :5]

        points = search(sz.get("bb-dataset", steps=1), model, net.x, net.y, row, seed=3, pool=pool).points
        same(points[:9], pool[order])


def test_near_the_optimum_of_linear_models_from_a_pool():
    """The registry's test gives no pool; from other inputs of the same kind the method ends where noise leads it."""
    found, best = [], []
    for seed in range(4):
        model, x, y = linear_problem((3, 8, 8), 8, seed=10 * seed)
        pool = torch.rand(64, 3, 8, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        result = sz.get("bb-dataset", steps=200).run(model, x, y, pool=pool)
        optimum = linear_optimum(model, x, y)
        assert (result.l0 >= optimum).all()
        assert (result.outcome[~result.success] == sz.Outcome.NO_START).all()
        found.append(result.l0[result.success])
        best.append(optimum[result.success])
    assert torch.cat(found).mean() <= 2 * torch.cat(best).mean()


def test_a_step_that_cannot_reach_the_boundary_is_as_long_as_the_radius():
    net, lengths = TinyNet("conv"), []
    for radius in (1e-8, 3e-8):
        asked = Recording(net)
        attack = sz.get("bb", steps=3, radius=radius)
        attack.run(asked, net.x[:1], net.y[:1], hardware=sz.Hardware(prepare="none"))
        first, second = [call for call, slope in zip(asked.calls, asked.slopes, strict=True) if slope][:2]
        lengths.append(float((second - first).norm()))
    assert lengths[0] > 0
    assert lengths[1] == pytest.approx(3 * lengths[0], rel=1e-3)


def test_a_sample_without_a_start_where_the_model_answered_nan_is_not_finite():
    net = TinyNet("conv")

    def model(x):
        clean = (x == net.x[:1]).flatten(1).all(1)
        return torch.where(clean[:, None], net(x), torch.nan)

    result = sz.get("bb", steps=2, directions=4, blends=4).run(model, net.x[:1], net.y[:1])
    assert result.outcome.tolist() == [sz.Outcome.NON_FINITE]
