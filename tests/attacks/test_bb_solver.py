"""Brendel & Bethge: the sub-problem on every recorded case, and the radii."""

import numpy as np
import pytest
import torch

from sigmazero.attacks.bb import solver
from tests.helpers.networks import TRACES, TinyNet
from tests.helpers.traces import recorded

RUNS = ["dataset_20", "dataset_60_lr0.1", "uniform_20", "uniform_60_lr0.1"]
OUT_OF_BOX, OUT_OF_RADIUS, CLOSED, DUAL = range(4)  # which way the reference went


def solved(x, a, b, c, r):
    """Our step, the point it leads to and the number of sites that differ from the clean input."""
    zero, one = torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
    step = solver.solve(x[:, None], a[:, None], b[:, None], c, r, zero, one)
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


def test_a_site_with_several_channels_moves_as_one():
    g = torch.Generator().manual_seed(1)
    x, a = (torch.rand(20, 3, 16, generator=g, dtype=torch.float64) for _ in range(2))
    b = torch.randn(20, 3, 16, generator=g, dtype=torch.float64)
    c, zero, one = torch.full((20,), -0.5).double(), torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
    for radius in (0.6, 1.2, 100.0):
        step = solver.solve(x, a, b, c, torch.full_like(c, radius), zero, one)
        assert torch.equal(step.clean.any(1), step.clean.all(1))
        assert (step.s.flatten(1).norm(dim=1) <= radius + 1e-9).all()
        moved = (b * step.s).sum((1, 2))
        assert ((moved - c).abs() < 1e-9).all()
