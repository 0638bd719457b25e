"""Slopes of the margin learnt from queries alone, for searches without gradients.

A query tells how the margin differs between two points. What the slopes known so far do not explain of it is laid on
the features in which the points differ: most on those of which the least is known, some on their neighbours.

    g    slopes, (rows, features of a site, sites)      doubt    how little is known of each, from 1 on down
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from sigmazero.core import ops
from sigmazero.core.domain import Domain

SPREAD = 0.5  # what a neighbour learns, where a feature learns 1
SINGLE = 0.9  # how much of the doubt about a site goes when it was moved alone
NOISE = 0.1  # how much of a difference is not laid on anything: slopes are not the same everywhere


@dataclass
class Slopes:
    """What is known of each sample's slopes."""

    g: Tensor
    doubt: Tensor


def begin(d: Domain) -> Slopes:
    """Return slopes of 0, all of them doubtful."""
    g = torch.zeros_like(d.by_site(d.x))
    return Slopes(g, torch.ones_like(g))


def learn(s: Slopes, d: Domain, z: Tensor, rise: Tensor) -> Slopes:
    """Return the slopes after the margin rose by `rise` along z; a rise that is not finite is ignored."""
    known = rise.isfinite() & (z != 0).flatten(1).any(1)
    rise = torch.where(known, rise, 0.0)
    missed = torch.where(known, rise - (s.g * z).flatten(1).sum(1), 0.0)
    root = s.doubt.sqrt()
    share, own = root * _spread(root * z, d), s.doubt * z * z
    scale = ((z * share).flatten(1).sum(1) + NOISE * own.flatten(1).sum(1)).clamp(min=1e-30)
    learnt = own / ops.per_row(scale, z)
    return Slopes(s.g + share * ops.per_row(missed / scale, z), s.doubt * (1 - learnt).clamp(min=0))


def _spread(v: Tensor, d: Domain) -> Tensor:
    """Return values of features, each with a part of those of its neighbours in an image."""
    if d.x.ndim != 4:
        return v
    row = torch.where(torch.arange(3, device=v.device) == 1, 1.0, SPREAD).to(v.dtype)  # no copy, which breaks a capture
    return F.conv2d(v.reshape(-1, 1, *d.x.shape[2:]), torch.outer(row, row)[None, None], padding=1).view_as(v)


def grid(d: Domain, most: int) -> tuple[int, int]:
    """Return the side of square tiles of an image (0 for other inputs), and how many there are: at most `most`."""
    if d.x.ndim != 4:
        return 0, min(d.sites, most)
    height, width = d.x.shape[2:]
    side = 1
    while (count := d.sites // (height * width) * -(-height // side) * -(-width // side)) > most:
        if side >= max(height, width):
            break
        side += 1
    return side, count


def tiles(d: Domain, most: int) -> Tensor:
    """Return the tile of each site, of `most` at most: squares of an image, or every n-th site."""
    side, count = grid(d, most)
    site = torch.arange(d.sites, device=d.x.device)
    if not side:
        return site % count
    height, width = d.x.shape[2:]
    across, down = -(-width // side), -(-height // side)
    place = site % (height * width)
    return site // (height * width) * (across * down) + place // width // side * across + place % width // side


def learn_tile(known: Slopes, z: Tensor, rise: Tensor, mine: Tensor) -> Slopes:
    """Return the slopes after a tile was moved by z alone: each of its sites gets an equal part of the rise."""
    length = (z * z).flatten(1).sum(1)
    finite = rise.isfinite() & (length > 0)
    rise, length = torch.where(finite, rise, 0.0), length.clamp(min=1e-30)
    moved = mine & (z != 0).any(1)
    return replace(
        known,
        g=known.g + z * ops.per_row(rise / length, z),
        doubt=known.doubt * (1 - moved * (SINGLE / mine.sum().clamp(min=1)))[:, None],
    )


def probes(d: Domain, most: int) -> int:
    """Return how many queries the clean input and the tiles take."""
    return 1 + grid(d, most)[1]
