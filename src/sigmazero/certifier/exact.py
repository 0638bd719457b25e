"""The fewest changes that fool a small network, proved: branch and bound over the features that change.

A node that cannot be proved is split: the feature that counts most is free, or it stays. Where no feature is open, the
intervals of the free ones are halved. At every node the point at which the bound is lowest is tried on the network.
A proof holds by more than the network can be wrong in float32 (docs/evidence/exact-suite.md), so it holds for the model
as it runs.

>>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).requires_grad_(False)
>>> _ = model[1].weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]]))
>>> _ = model[1].bias.copy_(torch.tensor([0., 2.5]))
>>> found = solve(model, torch.full((4,), 0.5), 0)
>>> found.lower, found.upper
(2, 2)
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from sigmazero.certifier.dense import DOUBLE, FREE, OPEN, STAYS, Neighbourhood, Nodes, matrices

BATCH = 256  # nodes bounded at once
NARROW = 2.0**-16  # an interval that is not halved again


@dataclass(frozen=True)
class Optimum:
    """At least `lower` changes fool the network, `upper` do at `witness`; the same number where it is solved.

    `upper` is one more than the number of features, and `witness` is None, where no changes are known that do.
    """

    lower: int
    upper: int
    witness: Tensor | None
    nodes: int

    @property
    def exact(self) -> bool:
        """Whether nothing is left open."""
        return self.lower == self.upper


@dataclass(frozen=True)
class Searched:
    """What is known about t changes: a point that fools with so many, or that there is none, or neither."""

    proved: bool
    witness: Tensor | None
    nodes: int


def solve(model: nn.Sequential, x: Tensor, y: int, witness: Tensor | None = None, most: int = 100_000) -> Optimum:
    """The fewest features in [0, 1] whose change fools the network; with a limit on the nodes for each number of them.

    `witness` is a point that is known to fool it: then only that no fewer changes do is left to prove.
    """
    local = Neighbourhood(matrices(model, tuple(x.shape)), x, y)
    if bool((local.margins(local.x[None]) <= 0).any()):
        return Optimum(0, 0, x, 0)
    upper = x.numel() + 1 if witness is None else int((witness != x).sum())
    total, lower = 0, 1
    tried = upper - 1 if witness is not None else 1
    while lower < upper:
        found = search(local, tried, most)
        total += found.nodes
        if found.witness is not None:
            candidate = found.witness.view_as(x).to(x.dtype)
            upper, witness = int((candidate != x).sum()), candidate
            tried = min(tried, upper - 1)
        elif found.proved:
            lower = max(lower, tried + 1)
            tried = min(tried + 1, x.numel()) if witness is None else upper - 1
        else:
            tried, most = tried - 1, most // 4  # a smaller number may still be proved
        if tried < lower:
            break
    return Optimum(lower, upper, witness, total)


def search(local: Neighbourhood, changes: int, most: int) -> Searched:
    """Whether some point with at most so many changes fools; proofs hold in float32 as well, and so do points."""
    stack, slack = local.root(changes), local.slack(changes)
    nodes = 0
    while len(stack.left):
        if nodes >= most:
            return Searched(False, None, nodes)
        stack, part = stack.take(slice(None, -BATCH)), stack.take(slice(-BATCH, None))
        nodes += len(part.left)
        part, slopes = local.bound(part, slack)
        failing = (part.lead <= slack).any(1)
        if not bool(failing.any()):
            continue
        part, worst = part.take(failing), (part.lead - slack).argmin(1)[failing]
        slope = slopes[failing, worst]
        points = lowest(local, part, slope)
        fooled = (local.margins(points) < -slack).any(1)
        if bool(fooled.any()):
            return Searched(False, points[fooled][0], nodes)
        children = split(local, part, slope)
        if children is None:
            return Searched(False, None, nodes)
        stack = stack.join(children)
    return Searched(True, None, nodes)


def lowest(local: Neighbourhood, nodes: Nodes, slope: Tensor) -> Tensor:
    """The point of each node at which a linear form with these slopes is lowest."""
    ends = torch.where(slope > 0, nodes.lower, nodes.upper)
    points = torch.where(nodes.state == FREE, ends, local.x)
    gain = torch.where(nodes.state == OPEN, local.gains(slope), -1.0)
    rank = gain.argsort(1, descending=True).argsort(1)
    return torch.where((gain > 0) & (rank < nodes.left[:, None]), (slope < 0).to(DOUBLE), points)


def split(local: Neighbourhood, nodes: Nodes, slope: Tensor) -> Nodes | None:
    """Two nodes for each, which together hold its points; None where one cannot be split any more."""
    gain = torch.where((nodes.state == OPEN) & (nodes.left > 0)[:, None], local.gains(slope), -1.0)
    by_feature = gain.amax(1) >= 0
    some, rest = nodes.take(by_feature), nodes.take(~by_feature)
    chosen = _only(gain[by_feature].argmax(1), gain.shape[1])
    free = replace(some, state=some.state.masked_fill(chosen, FREE), left=some.left - 1)
    children = replace(some, state=some.state.masked_fill(chosen, STAYS)).join(free)
    if not len(rest.left):
        return children
    width = torch.where(rest.state == FREE, rest.upper - rest.lower, 0.0)
    counts = width * (slope[~by_feature].abs() + 1e-3)  # slopes alone would leave some intervals whole for ever
    chosen = _only(counts.argmax(1), counts.shape[1])
    if bool((width[chosen] < NARROW).any()):
        return None
    middle = (rest.lower + rest.upper) / 2
    below = replace(rest, upper=torch.where(chosen, middle, rest.upper))
    above = replace(rest, lower=torch.where(chosen, middle, rest.lower))
    return children.join(below).join(above)


def _only(place: Tensor, size: int) -> Tensor:
    return torch.nn.functional.one_hot(place, size).bool()
