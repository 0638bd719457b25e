"""Begin query swap within a budget: a random search over k sites, guided by slopes learnt from its queries.

First the clean input and tiles of the image are asked about alone, which gives first slopes (see slopes). Then it works
as Sparse-RS does: some of the k changed sites are exchanged, and the new point stays if its margin is smaller. What
differs is how the sites are drawn. Half of the exchanges are blind, as in Sparse-RS. A quarter draws new sites by the
gain that the slopes promise, and gives up changed sites that promise little. A quarter is a whole new choice of the k
sites of largest gain, with some noise on the gains. Every query also corrects the slopes.

    k    sites that may change    a    best point so far, M its sites, m its margin    n    sites to exchange
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sigmazero.attacks import budget, sparse_rs
from sigmazero.attacks.blackbox import slopes
from sigmazero.attacks.blackbox.slopes import Slopes
from sigmazero.attacks.swap import sites
from sigmazero.attacks.swap.sites import Ends
from sigmazero.core import noise, ops
from sigmazero.core.oracle import Oracle

BLIND = 0.5  # share of the exchanges that trust no slope
WHOLE = 0.25  # share of the queries that ask about a whole new choice


@dataclass(kw_only=True)
class State(sparse_rs.State):
    """One row per sample; `clean` is the margin of the clean input, `loss` that of `a`."""

    clean: Tensor
    known: Slopes


@dataclass(frozen=True, kw_only=True)
class Aim(sparse_rs.SparseRS):
    """Look for a point with at most k changes by scores alone."""

    name: str = "query-swap"
    most: int  # tiles, at most
    jitter: float
    queries: int | None

    kind: ClassVar[Literal["minimum-norm", "budget"]] = "minimum-norm"  # as query swap is
    paper: ClassVar[str] = "docs/blackbox.md"

    @property
    def limit(self) -> int | None:
        """The most queries of a sample."""
        return self.queries

    def begin(self, oracle: Oracle, k: Tensor) -> State:
        """Begin without members and without slopes."""
        first = super().begin(oracle, k)
        return State(**vars(first), clean=first.loss, known=slopes.begin(oracle.domain))

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:  # type: ignore[override]
        """Ask about the clean input, a tile, or another choice of k sites; keep a choice that is better."""
        d = oracle.domain
        x, a = d.by_site(d.x), d.by_site(s.a)
        first = i <= slopes.grid(d, self.most)[1]
        tile = slopes.tiles(d, self.most) == i - 1
        ends = sites.ends(d, s.known.g)
        point, M = self._choice(i, s, ends, oracle)
        point = torch.where(first, torch.where(tile, sites.blind(oracle, ends, i), x), point)
        point = d.snap(point.view_as(d.x))
        m = oracle.goal.margin(oracle.logits(point))
        # A tile is compared with the clean input, a choice with the best one.
        moved = d.by_site(point) - torch.where(first, x, a)
        tried = slopes.learn_tile(s.known, moved * first, m - s.clean, tile)
        learnt = slopes.learn(tried, d, moved * ~first, m - s.loss)
        better = ~first & (m < s.loss)
        return replace(
            s,
            age=s.age + (~first).long(),
            a=torch.where(ops.per_row(better, point), point, s.a),
            M=torch.where(better[:, None], M, s.M),
            loss=torch.where(better, m, s.loss),
            clean=torch.where(i == 0, m, s.clean),
            known=learnt,
        )

    def _choice(self, i: Tensor, s: State, ends: Ends, oracle: Oracle) -> tuple[Tensor, Tensor]:
        """Return the next point, by sites, and the sites it changes."""
        p, d = oracle.problem, oracle.domain
        x, a, g = d.by_site(d.x), d.by_site(s.a), s.known.g
        u = noise.uniform(p.seed, p.ids, i, (3 * d.sites + 2,), stream=5, dtype=x.dtype)
        wave, fate, coin, turn, again = torch.split(u, [d.sites, d.sites, d.sites, 1, 1], 1)
        start = (s.age == 0)[:, None]
        whole = start | (turn < WHOLE)
        blind = ~whole & (turn < WHOLE + BLIND)
        # Sites are drawn without replacement as a race: arrival times are exponential with the weights as rates.
        promise = ends.gain * ends.gain
        promise = promise / promise.sum(1, keepdim=True).clamp(min=1e-30) + 1e-9
        arrive = -torch.log1p(-wave) / torch.where(blind, 1.0, promise)
        held = sites.total(g * (x - a))  # by how much the margin rises if a site is put back, to first order
        ease = (held / held.amax(1, keepdim=True).clamp(min=1e-30)).clamp(min=1e-2).rsqrt()
        leave = -torch.log1p(-fate) / torch.where(blind, 1.0, ease)
        room = budget.movable(d).any(1)
        n = torch.minimum(self.exchanged(s.age, s.k), room.sum(1) - s.M.sum(1))
        most = min(p.budget or 0, d.sites)
        out, new = _first(leave, s.M, n, most), _first(arrive, room & ~s.M, n, most)
        if d.several is not None:  # in a space a member may need another value, as often as another member
            new = torch.where(again < 0.5, out, new)
        random = self._draw_values(oracle, i, a, must_differ=n == 1)
        value = torch.where((blind & (coin < 0.5))[:, None], random, ends.end)
        swap = torch.where(new[:, None], value, torch.where(out[:, None], x, a))
        choice = sites.whole_choice(d, ends, s.k, wave, self.jitter)
        point = torch.where(whole[:, None], choice, swap)
        return point, torch.where(whole, (choice != x).any(1), (s.M & ~out) | new)


def _first(time: Tensor, among: Tensor, n: Tensor, most: int) -> Tensor:
    """Return the n sites of each row, at most `most`, with the shortest times, among some."""
    time = torch.where(among, time, torch.inf)
    last = time.topk(most, 1, largest=False).values.gather(1, n.clamp(1, most)[:, None] - 1)
    return among & (time <= last) & (n > 0)[:, None]
