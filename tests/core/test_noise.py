import torch

from sigmazero.core import noise


def test_depends_on_its_coordinates_alone():
    ids = torch.arange(50)
    whole = noise.uniform(3, ids, 7, (4, 5))
    assert torch.equal(whole[20:21], noise.uniform(3, ids[20:21], torch.tensor(7), (4, 5)))
    for other in (
        noise.uniform(4, ids, 7, (4, 5)),
        noise.uniform(3, ids, 8, (4, 5)),
        noise.uniform(3, ids + 1, 7, (4, 5)),
        noise.uniform(3, ids, 7, (4, 5), stream=1),
    ):
        assert (whole != other).float().mean() > 0.99


def test_uniform_is_uniform_and_independent():
    u = noise.uniform(0, torch.arange(200), 0, (500,), dtype=torch.float64)
    assert u.min() >= 0
    assert u.max() < 1
    counts = torch.histc(u, 20, 0, 1)
    expected = u.numel() / 20
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert chi2 < 43.8  # 99.9 % point with 19 degrees of freedom; the numbers are fixed, so this cannot flicker
    for a, b in ((u[:, :-1], u[:, 1:]), (u[:-1], u[1:])):
        assert torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1].abs() < 0.012


def test_normal_has_the_moments_of_one():
    z = noise.normal(1, torch.arange(300), 2, (400,), dtype=torch.float64)
    assert z.isfinite().all()
    assert z.mean().abs() < 0.01
    assert (z.var() - 1).abs() < 0.02
    assert ((z.abs() < 1).double().mean() - 0.6827).abs() < 0.005


def test_negative_seeds_and_large_ids_work():
    u = noise.uniform(-5, torch.tensor([2**62, 0]), 10**12, (3,))
    assert u.shape == (2, 3)
    assert not torch.equal(u[0], u[1])


def test_a_sequence_depends_on_its_coordinates_alone():
    ids, step = torch.arange(50), torch.tensor(7)
    whole = noise.drawn(noise.source(3, ids), step, 20)
    assert torch.equal(whole[20:21], noise.drawn(noise.source(3, ids[20:21]), step, 20))
    for other in (
        noise.drawn(noise.source(4, ids), step, 20),
        noise.drawn(noise.source(3, ids), step + 1, 20),
        noise.drawn(noise.source(3, ids + 1), step, 20),
        noise.drawn(noise.source(3, ids, stream=1), step, 20),
        noise.uniform(3, ids, 7, (20,)),
    ):
        assert (whole != other).float().mean() > 0.99


def test_a_sequence_is_uniform_and_no_number_of_it_returns():
    begins = noise.source(0, torch.arange(100))
    u = torch.cat([noise.drawn(begins, torch.tensor(i), 50, torch.float64) for i in range(20)], 1)
    assert u.unique().numel() == u.numel()
    counts = torch.histc(u, 20, 0, 1)
    assert ((counts - u.numel() / 20) ** 2 / (u.numel() / 20)).sum() < 43.8
    for a, b in ((u[:, :-1], u[:, 1:]), (u[:-1], u[1:]), (u[:, :-50], u[:, 50:])):
        assert torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1].abs() < 0.012
    single = noise.drawn(begins, torch.tensor(3), 50)
    assert single.dtype == torch.float32
    assert torch.allclose(single.double(), u[:, 150:200], atol=2**-24)
