r"""Label swap: few changes on a model that says no more than a class (docs/blackbox.md).

It begins anywhere where the class is another one: a start that is given, the far ends of the box, or some tiles of the
input at random ends. In a space, and where a pool is given, every other try is a row of the pool, as far as the space
allows it: where bits may only be added, its union with the input. Then it goes back to the input as long as the class
stays. A query puts back several changed sites at once, twice as many after a success, half as many after a failure.
Where not even one can be put back, every other query exchanges a changed site for another: the number of changes stays,
and others may have become needless by it.

    a    current point, which reaches the goal          b       how many sites the next query puts back
    need how often a site was put back in vain          begun   whether there is such a point yet

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> result = sz.get("label-swap", steps=60).run(model, torch.full((1, 4), 0.5), torch.tensor([0]))
>>> int(result.l0[0]), int(result.backwards[0])
(2, 0)
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from sigmazero.attacks.blackbox.slopes import tiles
from sigmazero.attacks.swap import sites
from sigmazero.attacks.swap.search import neighbours
from sigmazero.core import noise, ops
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Domain
from sigmazero.core.model import Ability
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count, Whole

LEVELS = (4, 16, 64, 256)  # most tiles of a start; one start after the other takes the next number
POOL, TRIES = 512, 32  # rows of the pool that are compared with each input, and those of them that are tried


@dataclass
class State:
    """One row per sample; `need` is (rows, sites), `starts` are rows of the pool (rows, tries, ...), if any."""

    a: Tensor
    starts: Tensor
    begun: Tensor
    b: Tensor
    need: Tensor
    luck: Tensor
    done: Tensor


@dataclass(frozen=True, kw_only=True)
class LabelSwap(Attack):
    """Start far away and put changes back, or exchange them, as long as the class stays wrong. It needs no more of a
    model than a class.
    """

    name: str = "label-swap"
    steps: Annotated[Count, "queries of the search"] = 2000
    radius: Annotated[Whole, "how far “near” reaches, for inputs with positions"] = 1

    asks: ClassVar[str] = "1 query a step"
    paper: ClassVar[str] = "docs/blackbox.md"
    version: ClassVar[int] = 3
    needs: ClassVar[Ability] = "labels"
    finite_box: ClassVar[bool] = True
    takes: ClassVar[frozenset[str]] = frozenset({"start", "pool"})
    unroll: ClassVar[int] = 1

    def init(self, oracle: Oracle) -> State:
        """Begin without a query."""
        p, d = oracle.problem, oracle.domain
        zero = d.x.new_zeros(len(p))
        return State(
            a=d.x,
            starts=_of_the_pool(oracle),
            begun=zero > 0,
            b=zero,
            need=d.x.new_zeros(len(p), d.sites),
            luck=noise.source(p.seed, p.ids),
            done=zero > 0,
        )

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Ask whether the class is still another one with fewer changes, or with other ones."""
        d, start, n = oracle.domain, oracle.problem.start, oracle.domain.sites
        x, lower, upper = d.box
        u = noise.drawn(s.luck, i, 2 * n + 3, d.x.dtype)
        wave, race, coins = torch.split(u, [n, n, 3], 1)
        a = s.a.view_as(x)
        changed = (a != x).any(1)
        exchange = s.begun & (s.b <= 1) & (coins[:, 0] < 0.5)
        back = self._back(s, d, changed, wave, torch.where(exchange, 1, s.b), (coins[:, 1] < 0.5) & ~exchange)
        drawn = sites.either(oracle, i)
        new = self._new(d, (lower < upper).any(1), changed, race, coins[:, 2] < 0.5) & exchange[:, None]
        point = torch.where(new[:, None], drawn, torch.where(back[:, None], x, a))
        point = torch.where(ops.per_row(s.begun, a), point, self._start(i, d, drawn, race)).view_as(d.x)
        if (tries := s.starts.shape[1]) > 0:
            turn = torch.div(i, 2, rounding_mode="floor")
            given = s.starts.index_select(1, turn.clamp(max=tries - 1).view(1))[:, 0]
            mine = ~s.begun & (i % 2 == (0 if oracle.problem.pool_given else 1)) & (turn < tries)
            point = torch.where(ops.per_row(mine, point), given, point)
        if start is not None:
            point = torch.where(i == 0, d.clip(d.from_user(start)), point)
        point = d.snap(point)
        fooled = oracle.goal.margin(oracle.logits(point)) < 0
        taken = fooled & (~s.begun | (oracle.worth(point) <= oracle.worth(s.a)))
        a = torch.where(ops.per_row(taken, s.a), point, s.a)
        vain = (s.begun & ~taken)[:, None] & back
        need = s.need + vain / back.sum(1, keepdim=True).clamp(min=1)
        return State(
            a=a,
            starts=s.starts,
            begun=s.begun | taken,
            b=self._next(s, taken, exchange, oracle.l0(a)),
            need=torch.where((taken & exchange)[:, None], 0.5 * need, need),
            luck=s.luck,
            done=sites.finished(oracle),
        )

    def _back(self, s: State, d: Domain, changed: Tensor, wave: Tensor, b: Tensor, close: Tensor) -> Tensor:
        """Return b changed sites to put back: any, those not needed before first; or close ones."""
        time = -torch.log1p(-wave) * torch.exp(s.need)
        if d.x.ndim == 4:
            first = time.masked_fill(~changed, torch.inf).argmin(1)
            width = d.x.shape[3]
            place = torch.arange(d.sites, device=wave.device) % (d.x.shape[2] * width)
            down, right = place // width, place % width
            apart = torch.maximum((down - down[first][:, None]).abs(), (right - right[first][:, None]).abs())
            time = torch.where(close[:, None], apart + wave, time)
        score = (-time).masked_fill(~changed, -torch.inf)
        least = ops.kth_largest(score, b.long().clamp(min=1, max=d.sites))
        return changed & (score >= least[:, None])

    def _new(self, d: Domain, room: Tensor, changed: Tensor, race: Tensor, near: Tensor) -> Tensor:
        """Return one site that is not changed yet: anywhere, or near a changed one."""
        free = ~changed & room
        close = free & (neighbours(changed, d.x, self.radius)[0] > 0)
        allowed = torch.where((near & close.any(1))[:, None], close, free)
        first = race.masked_fill(~allowed, -1.0).argmax(1, keepdim=True)
        return torch.zeros_like(changed).scatter(1, first, True) & allowed

    def _start(self, i: Tensor, d: Domain, drawn: Tensor, race: Tensor) -> Tensor:
        """Return all sites at their far ends, then half of the tiles at random ends, coarser and finer ones in turn."""
        x, maps = d.by_site(d.x), torch.stack([tiles(d, most) for most in LEVELS])
        tile = maps.index_select(0, (i % len(LEVELS)).view(1)).expand_as(race)
        some = race.gather(1, tile) < 0.5  # the numbers of the first sites serve as those of the tiles
        if d.needs_exploring:
            return torch.where(((i % 3 == 0) | some)[:, None], drawn, x)
        return torch.where(i <= 1, d.far(), torch.where(some[:, None], drawn, x))

    def _next(self, s: State, taken: Tensor, exchange: Tensor, count: Tensor) -> Tensor:
        """Return how many sites are put back next: half of all at first, then more or fewer by success."""
        after = torch.where(taken, 2 * s.b, s.b / 2)
        b = torch.where(exchange, s.b, torch.where(s.begun, after, count / 2))
        return b.minimum(count / 2).clamp(min=1)


def _of_the_pool(oracle: Oracle) -> Tensor:
    """Return rows of the pool as each sample may have them, (rows, tries, ...): the nearest and others in turn.

    There are none in a box for which no pool was given.
    """
    p, d = oracle.problem, oracle.domain
    if p.pool is None or not (d.needs_exploring or p.pool_given):
        return d.x[:, None][:, :0]
    luck = noise.bits(p.seed, p.ids, 0, (min(POOL, len(p.pool)),), stream=5)
    some = luck.argsort(1) if len(p.pool) <= POOL else luck % len(p.pool)
    found = []
    for row in range(len(d)):  # one at a time: a pool may be large
        alone = d.take(torch.full_like(some[row], row))
        points = alone.allowed(alone.clip(alone.from_user(p.pool[some[row]])))
        far = alone.l0(points)
        near = torch.where(far > 0, far, d.sites + 1).argsort(stable=True)
        both = torch.stack([near, torch.arange(len(near), device=near.device)], 1).flatten()
        found.append(points[both[:TRIES]])
    return torch.stack(found) if found else d.x[:, None][:, :0]
