"""What a network that stands in for the model (a surrogate) says of points; the model itself is not asked.

Of a move across the whole box a robust network's gradient says little. So the surrogate is asked about moved points.
Points by site are (rows, features of a site, sites), several of each sample (rows, number, features of a site, sites).
"""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn

from sigmazero.core.model import logits_in
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Kind, NamedModel
from sigmazero.core.problem import Problem

Network = Callable[[Tensor], Tensor]
Surrogate = (
    Annotated[Network, Kind(nn.Module, "a network")] | Annotated[NamedModel, Kind(NamedModel, "a name in a plan")]
)
CHUNK = 256  # points a surrogate is asked about at once: on a processor more take longer each
GROWTH = (4, 4, 4, 4, 8, 8, 16, 16)  # sites that join a way at once, before the others are asked about again
LENGTH = sum(GROWTH)
HOPEFUL = 128  # sites that are asked about again: those that do most alone


class Way(NamedTuple):
    """Sites in the order in which they best change, and whether each of them helps then: (rows, length)."""

    order: Tensor
    helps: Tensor


def check(name: str, surrogate: object) -> None:
    """Refuse a surrogate that cannot be asked as it is."""
    if isinstance(surrogate, NamedModel):
        raise ValueError(f"{name}: surrogate is a name, {surrogate.name!r}; load that network and pass it instead")
    if isinstance(surrogate, nn.Module) and surrogate.training:
        raise ValueError(f"{name}: the surrogate is in training mode; call surrogate.eval() first")


def answers(surrogate: Network, p: Problem, points: Tensor) -> Tensor:
    """The surrogate's logits at several points of each sample: (rows, number, classes)."""
    d = p.domain
    legal = d.to_user(d.snap(points.reshape(len(points), -1, *d.x.shape[1:]))).flatten(0, 1)
    with torch.no_grad():
        parts = [logits_in(surrogate(part)) for part in torch.split(legal, CHUNK)]
    return torch.cat(parts).to(d.x.dtype).view(len(points), points.shape[1], -1)


def margins(p: Problem, logits: Tensor, rival: Tensor | None = None) -> Tensor:
    """The margin of several answers for each sample, (rows, number); towards one class, where one is named."""
    if rival is None:
        return p.goal.margin(logits)
    own, other = (logits.gather(2, y[:, None, None].expand(-1, logits.shape[1], 1))[..., 0] for y in (p.y, rival))
    return p.goal.downhill(own - other)


def singles(surrogate: Network, p: Problem, a: Tensor, where: Tensor, value: Tensor) -> Tensor:
    """Logits (rows, 1 + number, classes) of a point, and where each of some sites alone gets its value.

    Sites are (rows, number), values (rows, features of a site, number).
    """
    found, each = [answers(surrogate, p, a[:, None])], max(1, CHUNK // len(a))
    for sites_, values in zip(torch.split(where, each, 1), torch.split(value, each, 2), strict=True):
        places = sites_[:, :, None, None].expand(-1, -1, a.shape[1], 1)
        points = a[:, None].expand(-1, sites_.shape[1], -1, -1).scatter(3, places, values.transpose(1, 2)[..., None])
        found.append(answers(surrogate, p, points))
    return torch.cat(found, 1)


def rises(p: Problem, logits: Tensor, rival: Tensor | None = None) -> Tensor:
    """By how much the margin rises from the first answer to each of the others; 0 where that is not known."""
    m = margins(p, logits, rival)
    rise = m[:, 1:] - m[:, :1]
    return torch.where(rise.isfinite(), rise, 0.0)


def far(surrogate: Network, p: Problem) -> Tensor:
    """Where a site goes: to the further end of the box, or to the other category that the surrogate likes best."""
    d, categories = p.domain, p.domain.categories
    if categories is None:
        return d.far()
    slope = Oracle(surrogate, p).value_and_grad(d.x, p.goal.margin).grad
    return torch.where(categories, d.best_values(d.by_site(slope)), d.far())


def way(surrogate: Network, p: Problem, value: Tensor, rise: Tensor, rival: Tensor | None) -> Way:
    """The order in which sites best change, by the surrogate; `rise` is what each does alone."""
    x, price = p.domain.by_site(p.domain.x), p.domain.costs.to(rise).expand_as(rise)
    stuck = (value == x).all(1)
    some = (rise / price).masked_fill(stuck, torch.inf).topk(min(HOPEFUL, p.sites), 1, largest=False).indices
    ends, price, shut = value.gather(2, _wide(some, value)), price.gather(1, some), stuck.gather(1, some)
    rise, a, order, helps = rise.gather(1, some), x, some[:, :0], shut[:, :0]
    for n in GROWTH:
        n = min(n, some.shape[1] - order.shape[1])
        if n == 0:
            break
        if order.shape[1]:
            rise = rises(p, singles(surrogate, p, a, some, ends), rival)
        at = (rise / price).masked_fill(shut, torch.inf).topk(n, 1, largest=False).indices
        new, falls = some.gather(1, at), rise.gather(1, at) < 0
        order, helps, shut = torch.cat([order, new], 1), torch.cat([helps, falls], 1), shut.scatter(1, at, True)
        there = _wide(new, value)
        a = a.scatter(2, there, torch.where(falls[:, None], value.gather(2, there), a.gather(2, there)))
    return Way(order, helps)


def _wide(where: Tensor, like: Tensor) -> Tensor:
    """Sites (rows, number) as indices of all their features."""
    return where[:, None].expand(-1, like.shape[1], -1)
