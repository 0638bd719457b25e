"""The first phase of a search without gradients that has a surrogate: whole choices that fool the surrogate.

The surrogate alone says in which order sites had best change: one way for its own margin, others towards the classes
that the model itself holds for likeliest. The model is asked about the same number of sites on each way, then about
more of them on the best way until that succeeds, then about fewer, halving what lies between success and failure.
Where queries are many, tiles follow as without a surrogate: a surrogate may be wrong. The search after that goes by
what the model answered alone; a surrogate that goes on steering does harm there (docs/blackbox.md).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from sigmazero.attacks.blackbox import slopes
from sigmazero.attacks.blackbox.slopes import Slopes
from sigmazero.attacks.swap import sites
from sigmazero.core import noise
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Domain
from sigmazero.core.model import Ability, logits_in
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
FIRST = 16  # sites on each way at first, at most
RIVALS = 2  # classes with a way of their own
WAYS = 1 + RIVALS
HALVINGS = 6  # questions about the best way


@dataclass
class State:
    """One row per sample.

    m      margin of the clean input                low    sites of the largest choice that failed
    h      the surrogate's slopes there             value  where each site goes
    ways   sites in order, (rows, ways, length)     helps  whether they help the surrogate's margin to fall
    least  lowest margin on the ways so far         best   on which of them
    """

    known: Slopes
    m: Tensor
    h: Tensor
    value: Tensor
    ways: Tensor
    helps: Tensor
    least: Tensor
    best: Tensor
    low: Tensor
    luck: Tensor


@dataclass(frozen=True, kw_only=True)
class Transfer(Attack):
    """The clean input, then points on the surrogate's ways, each of them one query."""

    name: str = "query-swap"
    steps: int
    tiles: int
    jitter: float
    queries: int | None
    surrogate: Network

    paper: ClassVar[str] = "docs/blackbox.md"
    needs: ClassVar[Ability] = "scores"
    unroll: ClassVar[int] = 1

    def init(self, oracle: Oracle) -> State:
        """Ask about the clean input, and the surrogate about everything else."""
        p, d, net = oracle.problem, oracle.domain, self.surrogate
        x, logits = d.by_site(d.x), oracle.logits(d.x)
        every = torch.arange(d.sites, device=d.x.device).expand(len(p), -1)
        value = far(net, p)
        rivals: list[Tensor | None] = [None]
        if not p.goal.narrow:
            likely = logits.scatter(1, p.y[:, None], -torch.inf).topk(min(RIVALS, logits.shape[1] - 1), 1).indices
            rivals += list(likely.unbind(1))
        alone = singles(net, p, x, every, value)
        risen = [rises(p, alone, rival) for rival in rivals]
        ways = [way(net, p, value, rise, rival) for rise, rival in zip(risen, rivals, strict=True)]
        z = value - x
        return State(
            known=slopes.begin(d),
            m=p.goal.margin(logits),
            h=z * (risen[0] / (z * z).sum(1).clamp(min=1e-30))[:, None],
            value=value,
            ways=torch.stack([way.order for way in ways], 1),
            helps=torch.stack([way.helps for way in ways], 1),
            least=d.x.new_full((len(p),), torch.inf),
            best=torch.zeros_like(p.y),
            low=d.x.new_full((len(p),), first(d)),
            luck=noise.source(p.seed, p.ids),
        )

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Ask about the first sites of a way, or a tile; where no way is long enough, about a whole choice."""
        d, paths, length = oracle.domain, *s.ways.shape[1:]
        x = d.by_site(d.x)
        racing, turn = i < paths, i - paths - HALVINGS
        tiling = (turn >= 0) & (turn < self.tiles)
        wave = noise.drawn(s.luck, i, length + d.sites, d.x.dtype)
        best = oracle.incumbents.best_l0
        low, size = next_size(s.low, best.to(s.low), best <= d.sites, length)
        size = torch.where(racing, torch.full_like(size, first(d)), size)
        which = torch.where(racing, i.clamp(max=paths - 1), s.best)
        along = self._along(s, x, which, size, wave[:, :length] * ~racing)
        ends = sites.ends(d, s.h)
        choice = sites.whole_choice(d, ends, size, wave[:, length:], self.jitter)
        point = torch.where((size > length)[:, None, None], choice, along)
        mine = slopes.tiles(d, max(1, self.tiles)) == turn
        point = torch.where(tiling, torch.where(mine, s.value, x), point)
        point, before = d.snap(point.view_as(d.x)), oracle.incumbents.best_cost
        m = oracle.goal.margin(oracle.logits(point))
        z, failed = (point - d.x).view_as(x), oracle.incumbents.best_cost >= before
        known, missed = slopes.learn(s.known, d, z * ~tiling, m - s.m), m - s.m - (s.known.g * z).flatten(1).sum(1)
        better = racing & (m < s.least)
        failing = torch.where(racing, torch.where(m < 0, first(d) / 2, s.low), torch.where(failed, size, low))
        return replace(
            s,
            known=slopes.learn_tile(known, z * tiling, missed, mine & tiling),
            least=torch.where(better, m, s.least),
            best=torch.where(better, i, s.best),
            low=torch.where(tiling, s.low, failing),
        )

    def _along(self, s: State, x: Tensor, which: Tensor, size: Tensor, wave: Tensor) -> Tensor:
        """Return the point with the first sites of a way changed, in an order that is varied a little."""
        mine = which.expand(len(s.ways))[:, None, None].expand(-1, 1, s.ways.shape[2])
        way, helps = (v.gather(1, mine)[:, 0] for v in (s.ways, s.helps))
        turn = torch.arange(1, way.shape[1] + 1, device=way.device) * (1 + 2 * self.jitter * wave)
        taken = (turn.argsort(1).argsort(1) < size[:, None]) & helps
        chosen = torch.zeros_like(x[:, 0], dtype=torch.bool).scatter(1, way, taken)
        return torch.where(chosen[:, None], s.value, x)


def first(d: Domain) -> int:
    """Return how many sites of each way are tried at first."""
    return max(1, min(FIRST, d.sites // 4))


def next_size(low: Tensor, best: Tensor, found: Tensor, length: int = 0) -> tuple[Tensor, Tensor]:
    """Return the largest choice that failed, as far as it still counts, and the size of the next one.

    Choices are jittered: where the two ends have met, smaller ones get another try. The sites of a way, `length` of
    them, are tried before more are.
    """
    low = torch.where(found & (best - low <= (best / 8).clamp(min=1)), best / 2, low)
    more = torch.where(low < length, (2 * low).clamp(max=length), 2 * low)
    return low, torch.where(found, (low + best) / 2, more).clamp(min=1)


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
    """Return the surrogate's logits at several points of each sample: (rows, number, classes)."""
    d = p.domain
    legal = d.to_user(d.snap(points.reshape(len(points), -1, *d.x.shape[1:]))).flatten(0, 1)
    with torch.no_grad():
        parts = [logits_in(surrogate(part)) for part in torch.split(legal, CHUNK)]
    return torch.cat(parts).to(d.x.dtype).view(len(points), points.shape[1], -1)


def margins(p: Problem, logits: Tensor, rival: Tensor | None = None) -> Tensor:
    """Return the margin of several answers for each sample, (rows, number); towards the class `rival`, if given."""
    if rival is None:
        return p.goal.margin(logits)
    own, other = (logits.gather(2, y[:, None, None].expand(-1, logits.shape[1], 1))[..., 0] for y in (p.y, rival))
    return p.goal.downhill(own - other)


def singles(surrogate: Network, p: Problem, a: Tensor, where: Tensor, value: Tensor) -> Tensor:
    """Return the logits (rows, 1 + number, classes) of a point, and of it with each of some sites changed alone.

    Sites are (rows, number), values (rows, features of a site, number).
    """
    found, each = [answers(surrogate, p, a[:, None])], max(1, CHUNK // len(a))
    for sites_, values in zip(torch.split(where, each, 1), torch.split(value, each, 2), strict=True):
        places = sites_[:, :, None, None].expand(-1, -1, a.shape[1], 1)
        points = a[:, None].expand(-1, sites_.shape[1], -1, -1).scatter(3, places, values.transpose(1, 2)[..., None])
        found.append(answers(surrogate, p, points))
    return torch.cat(found, 1)


def rises(p: Problem, logits: Tensor, rival: Tensor | None = None) -> Tensor:
    """Return how far the margin rises from the first answer to each of the others; 0 where that is unknown."""
    m = margins(p, logits, rival)
    rise = m[:, 1:] - m[:, :1]
    return torch.where(rise.isfinite(), rise, 0.0)


def far(surrogate: Network, p: Problem) -> Tensor:
    """Return the value of each site: its further end, or the other category that the surrogate likes best."""
    d, categories = p.domain, p.domain.categories
    if categories is None:
        return d.far()
    slope = Oracle(surrogate, p).value_and_grad(d.x, p.goal.margin).grad
    return torch.where(categories, d.best_values(d.by_site(slope)), d.far())


def way(surrogate: Network, p: Problem, value: Tensor, rise: Tensor, rival: Tensor | None) -> Way:
    """Return the sites in the surrogate's order; `rise` is the effect of each alone."""
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
    """Return sites (rows, number) as indices of all their features."""
    return where[:, None].expand(-1, like.shape[1], -1)
