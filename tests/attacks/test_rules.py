"""Single rules of attacks that no query shows alone."""

import pytest
import torch

from sigmazero.attacks.ead import EAD
from sigmazero.attacks.fmn import FMN, State
from sigmazero.attacks.sigma_zero import SigmaZero
from sigmazero.attacks.sparsefool import walk_to_plane
from sigmazero.core import ops
from sigmazero.core.inputs import make_problem
from sigmazero.core.oracle import Oracle
from tests.helpers import traces
from tests.helpers.networks import TinyNet


def test_sigma_zeros_threshold_does_not_fall_below_0():
    """From there the first success raises it at once; a negative one would have to be made good first."""
    net = TinyNet("conv")
    outputs = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    answer = outputs[0]
    oracle = Oracle(lambda x: x.flatten(1)[:, :2] * 0 + answer, make_problem(net.x[:1], torch.tensor([0])))
    attack = SigmaZero(steps=100, threshold=0.05)
    state = attack.init(oracle)
    for i in range(10):
        state = attack.step(torch.tensor(i), state, oracle)
    assert state.τ.item() == 0
    answer = outputs[1]
    state = attack.step(torch.tensor(10), state, oracle)
    assert state.τ.item() == pytest.approx(0.01 * attack.rates[10, 1].item(), rel=1e-12)


@pytest.mark.parametrize(("fooled", "after"), [(True, 47), (False, 52)])
def test_many_changes_of_fmn_grow_and_shrink_by_a_share_rounded_down(fooled, after):
    """From 50 by 5 %: 47.5 and 52.5. The traces hold few changes, where one more or less is the larger move."""
    answer = torch.tensor([0.0, 1.0] if fooled else [1.0, 0.0], dtype=torch.float64)
    x = torch.full((1, 100), 0.5, dtype=torch.float64)
    oracle = Oracle(lambda x: x[:, :2] * 0 + answer, make_problem(x, torch.tensor([0])))
    state = FMN().step(torch.tensor(0), State(x + 0.1, x.new_full((1,), 50)), oracle)
    assert state.ε.tolist() == [after]


def test_the_last_of_many_rounds_of_ead_repeats_the_smallest_successful_weight():
    """Of ten rounds or more the last runs with `hi`, so its points are those of an earlier round."""
    c, inf = torch.tensor([4.0, 4.0]), torch.inf
    lo, hi = torch.tensor([1.0, 1.0]), torch.tensor([2.0, inf])
    many, few = EAD(binary_search_steps=10), EAD()
    assert many.next_const(c, lo, hi, torch.tensor([9, 9])).tolist() == [2.0, 1e10]
    assert many.next_const(c, lo, hi, torch.tensor([8, 8])).tolist() == [1.5, 40.0]
    assert few.next_const(c, lo, hi, torch.tensor([8, 8])).tolist() == [1.5, 40.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_l23_prox_is_a_local_minimum(dtype):
    """The derivative of (z − u)²/2 + μ·z^(2/3) vanishes where the operator is not zero, over many magnitudes."""
    μ = torch.logspace(-9, 1, 60, dtype=dtype)[:, None]
    edge = 2**2.75 / 3**1.5 * μ**0.75
    u = edge * torch.cat([torch.linspace(0, 0.999, 20), torch.linspace(1.001, 50, 200)]).to(dtype)
    z = ops.prox_l23(u, μ)
    assert torch.equal(z > 0, u > edge)
    slope = (z - u + 2 / 3 * μ * z ** (-1 / 3)) / u
    assert slope[z > 0].abs().max() < (1e-4 if dtype == torch.float32 else 1e-9)


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
        theirs = traces.walk_to_plane(start[row], normal[row], through[row])
        torch.testing.assert_close(ours[row], theirs, rtol=0, atol=1e-12)
