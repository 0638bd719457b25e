"""Brendel & Bethge: the sub-problem on every recorded case, and the reference's queries where its solver is exact."""

import numpy as np
import pytest
import torch

import sigmazero as sz
from sigmazero.attacks import _bb_solver, _bb_start
from sigmazero.attacks.bb import BrendelBethge
from sigmazero.core import noise
from sigmazero.core.inputs import make_problem
from sigmazero.core.oracle import Oracle
from sigmazero.run import Session
from tests.golden.recorded import recorded
from tests.helpers.networks import TRACES, TinyNet, linear_optimum, linear_problem

RUNS = ["dataset_20", "dataset_60_lr0.1", "uniform_20", "uniform_60_lr0.1"]
OUT_OF_BOX, OUT_OF_RADIUS, CLOSED, DUAL = range(4)  # which way the reference went


def solved(x, a, b, c, r):
    """Our step, the point it leads to and the number of sites that differ from the clean input."""
    zero, one = torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
    step = _bb_solver.solve(x[:, None], a[:, None], b[:, None], c, r, zero, one)
    s = step.s.squeeze(1)
    point = torch.where(step.clean.squeeze(1), x, a + s)
    return s, point, ((point - x).abs() > 1e-4).sum(1)


def cases():
    with np.load(TRACES / "bb_solver_cases.npz") as arrays:
        return {k: torch.from_numpy(arrays[k]) for k in arrays.files}


def steps_of(run, kind):
    """The sub-problems of a recorded run, one per row; input 5 is already wrong and never reaches an attack."""
    trace, net = recorded(f"bb_f64_{run}", kind), TinyNet(kind)
    case = {k: trace[f"solver_{k}"][:5].flatten(0, 1) for k in ("x", "b", "c", "r", "delta", "branch")}
    return case | {"x0": net.x[:5].flatten(1).repeat_interleave(trace["solver_c"].shape[1], 0)}


def check(case):
    """What holds for every sub-problem; returns by how many changes ours are more than the reference's (dual)."""
    s, point, changes = solved(case["x0"], case["x"], case["b"], case["c"], case["r"])
    theirs = ((case["x"] + case["delta"] - case["x0"]).abs() > 1e-4).sum(1)
    branch, c = case["branch"], case["c"]
    assert (point >= 0).all()
    assert (point <= 1).all()
    assert (s.norm(dim=1) <= case["r"] * (1 + 1e-9)).all()
    reached = branch >= CLOSED
    torch.testing.assert_close((case["b"] * s).sum(1)[reached], c[reached], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(s[branch == CLOSED], case["delta"][branch == CLOSED], rtol=0, atol=1e-9)
    assert torch.equal(changes[branch == CLOSED], theirs[branch == CLOSED])
    # The reference's boundary step is only meaningful for c < 0.
    check_boundary_steps({key: value[~reached & (c < 0)] for key, value in case.items()})
    away = ~reached & (c > 0)
    gained = (case["b"] * s).sum(1)
    assert (gained[away] >= 0).all()
    assert (gained[away] < c[away]).all()
    return (changes - theirs)[branch == DUAL]


def check_boundary_steps(case):
    """The reference's search for the length of a step is coarse: of the length that it took, ours is the same step."""
    theirs = case["delta"]
    end, length = case["x"] + theirs, theirs.norm(dim=1)
    cornered = ((end < 1e-12) | (end > 1 - 1e-12)).all(1)
    s, _, _ = solved(case["x0"], case["x"], case["b"], case["c"], torch.where(cornered, case["r"], length))
    # At radii below 1e-6 it goes up to 95 times as far as it may, and beyond the boundary: nobody moves there.
    tiny = case["r"] < 1e-6
    torch.testing.assert_close(s[~tiny], theirs[~tiny], rtol=0, atol=1e-9)
    assert (length[tiny] < 1e-5).all()
    wanted = case["r"][~tiny & ~cornered]
    torch.testing.assert_close(length[~tiny & ~cornered], wanted, rtol=0.02, atol=0)


def test_synthetic_subproblems():
    case = cases()
    assert case["branch"].bincount().tolist() == [30, 30, 30, 30]
    assert (check(case) <= 0).all()


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("run", RUNS)
def test_recorded_subproblems(run, kind):
    more = check(steps_of(run, kind))
    assert (more <= 0).double().mean() >= 0.98
    assert more.sum() <= 0.03 * len(more)


def test_boundary_step_is_the_longest_towards_the_boundary():
    """No random admissible step moves the margin further, for either sign of c."""
    case = cases()
    short = case["branch"] <= OUT_OF_RADIUS
    x0, a, b, c, r = (case[k][short] for k in ("x0", "x", "b", "c", "r"))
    s, _, _ = solved(x0, a, b, c, r)
    ours = (b * s).sum(1) * c.sign()
    g = torch.Generator().manual_seed(0)
    for _ in range(200):
        other = torch.randn(s.shape, generator=g, dtype=s.dtype) + 2 * (b * c.sign()[:, None])
        other = (a + other * (r / other.norm(dim=1))[:, None]).clamp(0, 1) - a
        assert ((b * other).sum(1) * c.sign() <= ours + 1e-9).all()


def test_a_site_with_several_channels_moves_as_one():
    g = torch.Generator().manual_seed(1)
    x, a = (torch.rand(20, 3, 16, generator=g, dtype=torch.float64) for _ in range(2))
    b = torch.randn(20, 3, 16, generator=g, dtype=torch.float64)
    c, zero, one = torch.full((20,), -0.5).double(), torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
    for radius in (0.6, 1.2, 100.0):
        step = _bb_solver.solve(x, a, b, c, torch.full_like(c, radius), zero, one)
        assert torch.equal(step.clean.any(1), step.clean.all(1))
        assert (step.s.flatten(1).norm(dim=1) <= radius + 1e-9).all()
        moved = (b * step.s).sum((1, 2))
        assert ((moved - c).abs() < 1e-9).all()


class Points:
    """Notes every point asked for, per sample, forwards and gradients alike."""

    def __init__(self, monkeypatch) -> None:
        self.of: dict[int, list[torch.Tensor]] = {}
        ask, grad = _bb_start.ask, Oracle.value_and_grad

        def note(ids, points):
            for row, sample in enumerate(ids.tolist()):
                self.of.setdefault(sample, []).append(points[row].clone())

        def asked(oracle, rows, points):
            note(oracle.problem.ids[rows], points.squeeze(1))
            return ask(oracle, rows, points)

        def graded(oracle, x, loss):
            note(oracle.problem.ids, x)
            return grad(oracle, x, loss)

        monkeypatch.setattr(_bb_start, "ask", asked)
        monkeypatch.setattr(Oracle, "value_and_grad", graded)


@pytest.mark.parametrize("decays", [1, 7, 20, 100])
def test_radii_of_runs_of_any_length(decays):
    """The reference's schedule, told as it goes: steps count from 1, and the radius shrinks before it is used."""
    for steps in range(1, 101):
        interval = max(1, int(steps / decays))
        radius, theirs = 0.032, []
        for t in range(1, steps + 1):
            if (t + 1) % interval == 0:
                radius *= 0.5
            theirs.append(radius)
        ours = BrendelBethge(steps=steps, radius_decays=decays).rates[:, 1]
        torch.testing.assert_close(ours, torch.tensor(theirs, dtype=torch.float64), rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("run", RUNS)
def test_queries_are_the_references_while_its_solver_is_exact(run, kind, monkeypatch):
    net, trace = TinyNet(kind), recorded(f"bb_f64_{run}", kind)
    steps, radius = (60, 0.1) if run.endswith("lr0.1") else (20, 1e-3)
    points, radii, solve = Points(monkeypatch), [], _bb_solver.solve

    def noted(x, a, b, c, r, lower, upper):
        radii.append(r)
        return solve(x, a, b, c, r, lower, upper)

    monkeypatch.setattr(_bb_solver, "solve", noted)
    problem = make_problem(net.x, net.y, start=trace["start"])
    result = Session(BrendelBethge(steps=steps, radius=radius, radius_batch=1, tolerance=0), net).run(problem)
    torch.testing.assert_close(torch.stack(radii, 1), trace["solver_r"][:5], rtol=1e-12, atol=0)
    for row in range(5):
        branch, c = trace["solver_branch"][row], trace["solver_c"][row]
        exact = (branch == CLOSED) | ((branch <= OUT_OF_RADIUS) & (c < 0))
        until = 12 + int(exact.int().cumprod(0).sum())  # the start, 10 halvings, the first step, what follows exactly
        ours = torch.stack(points.of[row])
        assert len(ours) == trace["n_forward"][row]
        torch.testing.assert_close(ours[:until], trace["queries"][row, :until], rtol=0, atol=1e-9)
        # A run adds the clean check and a verification each of the best and of the method's own answer.
        assert result.forwards[row] == trace["n_forward"][row] + 3
        assert result.backwards[row] == trace["n_backward"][row]
    assert result.success.all()
    assert result.own is not None
    assert result.own.success.all()
    if steps == 60:
        # Exact counts of the method as it is, against the reference's count of changes above 1e-4.
        result = Session(BrendelBethge(steps=steps, radius=radius, radius_batch=1), net).run(problem)
        assert result.l0[:5].sum() <= trace["l0_tol1e4"][:5].sum()


def test_every_point_is_counted_exactly():
    """No queried point holds a change that the method would not count."""
    net = TinyNet("rgb")
    seen = []

    def model(x):
        seen.append(x.detach().clone())
        return net(x)

    result = sz.get("bb-dataset", steps=60).run(model, net.x[:1], net.y[:1], pool=net.x)
    change = torch.cat(seen[-50:]).sub(net.x[:1]).abs()
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


def test_starts_from_noise_are_the_weakest_blend_of_the_grid(monkeypatch):
    net = TinyNet("conv")
    oracle = Oracle(net, make_problem(net.x[:5], net.y[:5], seed=3))
    start, found = _bb_start.from_noise(oracle, directions=50, blends=40)
    assert found.all()
    assert (net(start).argmax(1) != net.y[:5]).all()
    for row in range(5):
        # Draws do not depend on the others: this row's first adversarial direction, then every blend of it.
        draws = (noise.uniform(3, torch.tensor([row]), k, (1, 8, 8), dtype=torch.float64) for k in range(50))
        far = next(u for u in draws if net(u).argmax(1) != net.y[row])
        blends = torch.lerp(
            net.x[row : row + 1], far, torch.linspace(0, 1, 41, dtype=torch.float64)[:, None, None, None]
        )
        weakest = (net(blends).argmax(1) != net.y[row]).int().argmax()
        torch.testing.assert_close(start[row], blends[weakest], rtol=0, atol=1e-12)


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
