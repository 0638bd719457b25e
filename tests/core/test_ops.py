"""Properties of the pure tensor functions."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sigmazero.core import ops

values = st.lists(
    st.lists(st.sampled_from([0.0, 0.5, 1.0, -1.0, 2.0, 3.25]), min_size=6, max_size=6), min_size=1, max_size=4
)


@settings(deadline=None)
@given(values, st.integers(0, 8))
def test_keep_largest_keeps_exactly_k_of_the_largest(rows, k):
    x = torch.tensor(rows)
    kept = ops.keep_largest(x, torch.full((len(x),), k))
    assert kept.sum(1).tolist() == [min(k, 6)] * len(x)
    for row, keep in zip(x, kept, strict=True):
        if 0 < k < 6:
            assert row[keep].min() >= row[~keep].max()
    again = ops.keep_largest(torch.where(kept, x + 10, x), torch.full((len(x),), k))
    assert torch.equal(again, kept)


def test_adam_is_torchs():
    g = torch.randn(20, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    parameter = torch.zeros(3, 4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([parameter], lr=0.1)
    x, m, v = torch.zeros(3, 3, 4, dtype=torch.float64)
    first, second = ops.adam_corrections(20)
    for i in range(20):
        parameter.grad = g[i]
        optimizer.step()
        direction, m, v = ops.adam(g[i], m, v, first[i], second[i])
        x = x - 0.1 * direction
    torch.testing.assert_close(x, parameter.detach(), rtol=0, atol=1e-12)
