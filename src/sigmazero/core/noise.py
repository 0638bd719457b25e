"""Randomness that is a pure function of (seed, sample id, step, position).

A generator's next number depends on how many were drawn before, so the same sample gets other noise in another
batch. Here every number is a hash of its own coordinates: the same on every device, in any batch and any order.
The mixer is the finaliser of SplitMix64 in wrapping 64-bit integers.
"""

import math

import torch
from torch import Tensor

_GOLDEN, _MIX1, _MIX2 = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


def _shift(z: Tensor, bits: int) -> Tensor:
    """Shift right without sign extension: torch has no unsigned 64-bit arithmetic."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _wrap(number: int) -> int:
    """Return the signed 64-bit number with the same bits."""
    return (number + 2**63) % 2**64 - 2**63


def mix(z: Tensor) -> Tensor:
    """Return 64 bits that depend on all bits of each number."""
    z = (z ^ _shift(z, 30)) * _MIX1
    z = (z ^ _shift(z, 27)) * _MIX2
    return z ^ _shift(z, 31)


def bits(seed: int, ids: Tensor, step: Tensor | int, shape: tuple[int, ...], stream: int = 0) -> Tensor:
    """Return 63 random bits for each of `shape` positions of each sample: an int64 tensor (samples, *shape).

    Several draws at the same step have different numbers of `stream`.
    """
    key = mix(ids.to(torch.int64) + _wrap(_GOLDEN * (seed + 1)))
    key = mix(key + _GOLDEN * (torch.as_tensor(step, device=ids.device) + 1))
    key = mix(key + _wrap(_GOLDEN * (stream + 1)))
    position = torch.arange(math.prod(shape), device=ids.device)
    return _shift(mix(key[:, None] + _GOLDEN * (position + 1)), 1).view(-1, *shape)


def source(seed: int, ids: Tensor, stream: int = 0) -> Tensor:
    """Return the start of each sample's own sequence of random numbers, for `drawn`."""
    key = mix(ids.to(torch.int64) + _wrap(_GOLDEN * (seed + 1)))
    return mix(key + _wrap(_GOLDEN * (stream + 1)))


def drawn(source: Tensor, step: Tensor, n: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return n uniform numbers in [0, 1) of each sample's sequence: step i takes those from i · n on.

    This is SplitMix64 itself. It needs a third of the kernels of `uniform`, which makes a new key for every step.
    """
    digits = 24 if dtype == torch.float32 else 53
    place = torch.arange(1, n + 1, device=source.device) + n * step
    return _shift(mix(source[:, None] + _GOLDEN * place), 64 - digits).to(dtype) * 2.0**-digits


def uniform(
    seed: int,
    ids: Tensor,
    step: Tensor | int,
    shape: tuple[int, ...],
    stream: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return uniform numbers in [0, 1), the same in every batch.

    >>> a = uniform(0, torch.tensor([7, 8]), 3, (2,))
    >>> b = uniform(0, torch.tensor([8]), 3, (2,))
    >>> torch.equal(a[1:], b)
    True
    """
    digits = 24 if dtype == torch.float32 else 53
    return _shift(bits(seed, ids, step, shape, stream), 63 - digits).to(dtype) * 2.0**-digits


def normal(
    seed: int,
    ids: Tensor,
    step: Tensor | int,
    shape: tuple[int, ...],
    stream: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return standard normal numbers (Box–Muller on two uniforms of the same stream)."""
    pair = uniform(seed, ids, step, (2, *shape), stream, torch.float64)
    radius = torch.sqrt(-2 * torch.log1p(-pair[:, 0]))
    return (radius * torch.cos(2 * math.pi * pair[:, 1])).to(dtype)
