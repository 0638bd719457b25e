"""Every query of adv-lib's PDPGD, reproduced: its default and the l2/3 proximal operator."""

import pytest
import torch

import sigmazero as sz
from sigmazero.core import ops
from tests.golden.test_fmn import check_every_query

RUNS = {"pdpgd_30": ("pdpgd-paper", 30), "pdpgd_100": ("pdpgd-paper", 100), "pdpgd_l23_100": ("pdpgd", 100)}


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("run", RUNS)
def test_every_query_is_adv_libs(run, kind, monkeypatch):
    name, steps = RUNS[run]
    check_every_query(sz.get(name, steps=steps, random_start=0.0), run, kind, monkeypatch)


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
