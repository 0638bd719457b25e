"""Traces of reference implementations, the queries of ours, and the random numbers of ours by a second hand."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import sigmazero as sz
from tests.helpers.networks import TRACES, TinyNet

CORRECT = range(5)  # the sixth input of each network carries a wrong label


def recorded(file: str, kind: str) -> dict[str, Tensor]:
    """Return the arrays of one network in a file of traces."""
    with np.load(TRACES / f"{file}.npz") as arrays:
        return {k.removeprefix(f"{kind}__"): torch.from_numpy(arrays[k]) for k in arrays.files if k.startswith(kind)}


class Recording:
    """A model that keeps the points of every call, and whether a gradient was asked for."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.calls: list[Tensor] = []
        self.slopes: list[bool] = []

    @property
    def points(self) -> Tensor:
        """All points in order."""
        return torch.cat(self.calls)

    def __call__(self, x: Tensor) -> Tensor:
        self.calls.append(x.detach().clone())
        self.slopes.append(x.requires_grad)
        logits: Tensor = self.model(x)
        return logits


class Search(NamedTuple):
    """The queries of a search for one sample, without the clean check and the verification of the answers."""

    points: Tensor
    slopes: Tensor
    result: sz.Result


def search(attack: sz.Attack, model: Any, x: Tensor, y: Tensor, row: int, **options: Any) -> Search:
    """Attack one sample and record what is asked about it."""
    asked, one = Recording(model), slice(row, row + 1)
    result = attack.run(asked, x[one], y[one], ids=[row], hardware=sz.Hardware(prepare="none"), **options)
    slopes = [slope for call, slope in zip(asked.calls, asked.slopes, strict=True) for _ in call]
    times = 1 if attack.needs == "gradients" else 2  # without gradients a success is asked about twice
    return _inner(x[row], asked.points, slopes, result, times)


def searches(attack: sz.Attack, model: Any, x: Tensor, y: Tensor, **options: Any) -> list[Search]:
    """Attack samples together, of which none ends before the others, and record what is asked about each."""
    asked = Recording(model)
    result = attack.run(asked, x, y, batch_size=len(x), hardware=sz.Hardware(prepare="none"), **options)
    points = torch.stack(asked.calls)  # so every call was about every sample
    mine = [torch.arange(len(x)) == row for row in range(len(x))]
    return [_inner(x[row], points[:, row], asked.slopes, result.take(mine[row])) for row in range(len(x))]


def _inner(x: Tensor, points: Tensor, slopes: list[bool], result: sz.Result, times: int = 1) -> Search:
    """Cut off the first query and the last ones; all of them are counted."""
    own = [] if result.own is None else [result.own]
    verified = [each.x_adv[0] for each in (result, *own) if each.l0[0].isfinite() for _ in range(times)]
    assert int(result.given_up[0]) == 0
    assert int(result.forwards[0]) == len(points)
    assert torch.equal(points[0], x)
    end = len(points) - len(verified)
    assert all(torch.equal(point, answer) for point, answer in zip(points[end:], verified, strict=True))
    return Search(points[1:end], torch.tensor(slopes[1:end]), result)


def same(ours: Tensor, theirs: Tensor) -> None:
    """Compare points to nine digits after the point."""
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


def check_every_query(attack: sz.Attack, run: str, kind: str) -> None:
    """One forward and one backward per step: the saved points, the l0 and margin of all, the counts and the answer."""
    net, trace = TinyNet(kind), recorded(run, kind)
    for row, (ours, slopes, result) in enumerate(searches(attack, net, net.x[:5], net.y[:5])):
        stable = int(trace["stable_queries"][row])
        assert stable == attack.steps == len(ours) == trace["n_forward"][row]  # traces that are stable to their end
        assert slopes.sum() == result.backwards == trace["n_backward"][row]
        saved = int(trace["n_saved"][row])
        same(ours[:saved], trace["queries"][row, :saved])
        assert torch.equal((ours != net.x[row]).flatten(1).sum(1), trace["all_query_l0"][row])
        logits, own = net(ours), net.y[row]
        others = logits[:, torch.arange(logits.shape[1]) != own]
        same(logits[:, own] - others.amax(1), trace["all_query_margin"][row])
        # The references start with "best = all features" and so never store a point that changes every one.
        assert result.success[0]
        assert result.l0[0] == trace["l0"][row]
        same(result.x_adv[0], trace["final"][row])
    already = attack.run(net, net.x[5:], net.y[5:])
    assert [already.l0.item(), already.forwards.item(), already.backwards.item()] == [0, 1, 0]


def walk_to_plane(start: Tensor, normal: Tensor, through: Tensor) -> Tensor:
    """Return where SparseFool's walk in the unit box ends for one sample, coordinate by coordinate as in the paper."""
    now = start.clone()
    side = torch.sign(normal @ (now - through))
    left = set(normal.nonzero().flatten().tolist())
    while torch.sign(normal @ (now - through)) == side and left:
        j = max(sorted(left), key=lambda k: abs(float(normal[k])))
        amount = max(float((normal @ (now - through) + 0.001 * side).abs() / normal[j].abs()), 1e-4)
        now[j] = (now[j] + amount * normal[j].sign()).clamp(0, 1)
        left.remove(j)
    return now


GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return SplitMix64's finaliser of 64 bits; products wrap around."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def bits(row: int, step: int, shape: tuple[int, ...], stream: int = 0, seed: int = 0) -> Tensor:
    """Return 63 random bits per position, a hash of seed, sample, step, stream and position."""
    key = np.array([row], np.uint64)
    for part in (seed, step, stream):
        key = _mixed(key + GOLDEN * np.array([part + 1], np.uint64))
    positions = np.arange(1, math.prod(shape) + 1, dtype=np.uint64)
    return torch.from_numpy((_mixed(key + GOLDEN * positions) >> np.uint64(1)).astype(np.int64)).view(shape)


def uniform(row: int, step: int, shape: tuple[int, ...], stream: int = 0, seed: int = 0) -> Tensor:
    """Return uniform numbers in [0, 1) of 53 digits."""
    return (bits(row, step, shape, stream, seed) >> 10).double() * 2.0**-53


def normal(row: int, step: int, shape: tuple[int, ...], stream: int = 0, seed: int = 0) -> Tensor:
    """Return standard normal numbers, two uniform ones each (Box and Muller)."""
    a, b = uniform(row, step, (2, *shape), stream, seed)
    return torch.sqrt(-2 * torch.log1p(-a)) * torch.cos(2 * math.pi * b)


def rank_sum_z(ours: Tensor, theirs: Tensor) -> float:
    """Return the standardised rank sum (Wilcoxon, Mann and Whitney, ties averaged): beyond ±3 the samples differ.

    For outcomes that are 0 or 1 this is the test of two proportions.
    """
    a, b = ours.double().numpy(), theirs.double().numpy()
    both: NDArray[np.float64] = np.concatenate([a, b])
    _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    n, m = len(a), len(b)
    total = n + m
    spread = n * m / 12 * (total + 1 - (counts**3 - counts).sum() / (total * (total - 1)))
    return 0.0 if spread == 0 else float((ranks[:n].sum() - n * (total + 1) / 2) / np.sqrt(spread))
