"""Random numbers depend on seed, sample, step and stream alone, and look random."""

import pytest
import torch

from sigmazero.core import noise


def uniform(seed=3, ids=None, step=7, stream=0):
    return noise.uniform(seed, torch.arange(50) if ids is None else ids, torch.tensor(step), (20,), stream)


def drawn(seed=3, ids=None, step=7, stream=0):
    begins = noise.source(seed, torch.arange(50) if ids is None else ids, stream)
    return noise.drawn(begins, torch.tensor(step), 20)


@pytest.mark.parametrize("sequence", [False, True])
def test_uniform_and_independent(sequence):
    ids = torch.arange(100)
    if sequence:
        begins = noise.source(0, ids)
        u = torch.cat([noise.drawn(begins, torch.tensor(i), 50, torch.float64) for i in range(20)], 1)
        assert u.unique().numel() == u.numel()
        assert torch.allclose(noise.drawn(begins, torch.tensor(3), 50).double(), u[:, 150:200], atol=2**-24)
    else:
        u = noise.uniform(0, ids, 0, (1000,), dtype=torch.float64)
    assert u.min() >= 0
    assert u.max() < 1
    expected = u.numel() / 20
    chi2 = ((torch.histc(u, 20, 0, 1) - expected) ** 2 / expected).sum()
    assert chi2 < 43.8  # 99.9 % point with 19 degrees of freedom; the numbers are fixed, so this cannot flicker
    for a, b in ((u[:, :-1], u[:, 1:]), (u[:-1], u[1:]), (u[:, :-50], u[:, 50:])):
        assert torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1].abs() < 0.012
