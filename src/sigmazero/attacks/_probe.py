"""The first phase of a search without gradients: tiles of sites one by one, then whole choices by what they told.

Every tile is moved to the far ends of the box, alone. What that does to the margin is laid on its sites alike. Then
the sites that promise most are changed together: ever more of them until that succeeds, then fewer again, halving the
way between what succeeded and what did not.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from sigmazero.attacks import _sites as sites
from sigmazero.attacks import _slopes as slopes
from sigmazero.attacks._sites import Box
from sigmazero.attacks._slopes import Network, Slopes
from sigmazero.core import noise, ops
from sigmazero.core.ability import Ability
from sigmazero.core.attack import Attack
from sigmazero.core.oracle import Oracle
from sigmazero.core.problem import Problem

FIRST = 8  # sites of the first whole choice
SINGLE = 0.9  # how much of the doubt about a site goes when it was moved alone


@dataclass
class State:
    """One row per sample.

    m      margin of the clean input                    low    sites of the largest choice that failed
    h      the surrogate's slopes there                 seen   the part of h that the tiles have told anyway
    """

    known: Slopes
    m: Tensor
    h: Tensor | None
    seen: Tensor | None
    low: Tensor
    luck: Tensor

    def slopes(self) -> Slopes:
        """What is known: where the surrogate and the tiles speak of the same, the tiles hold."""
        trust = self.known.trust
        if trust is None or self.seen is None:
            return self.known
        return replace(self.known, g=self.known.g - ops.per_row(trust, self.seen) * self.seen)


@dataclass(frozen=True, kw_only=True)
class Probe(Attack):
    """The clean input, then at most `most` tiles, then whole choices, each of them one query."""

    name: str = "query-swap"
    steps: int
    most: int
    jitter: float
    surrogate: Network | None

    paper: ClassVar[str] = "docs/blackbox.md"
    needs: ClassVar[Ability] = "scores"
    unroll: ClassVar[int] = 1

    def init(self, oracle: Oracle) -> State:
        """Ask the surrogate alone."""
        p = oracle.problem
        h = slopes.tangents(self.surrogate, p)
        return State(
            known=slopes.begin(p, h is not None),
            m=p.x.new_full((len(p),), torch.inf),
            h=h,
            seen=None if h is None else torch.zeros_like(h),
            low=p.x.new_full((len(p),), FIRST / 2),
            luck=noise.source(p.seed, p.ids),
        )

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Ask about the clean input, a tile, or a whole choice."""
        p = oracle.problem
        box, tile = sites.box(p), slopes.tiles(p, self.most)
        probing = i <= slopes.grid(p, self.most)[1]
        mine = tile == i - 1
        best = oracle.tally.best_cost
        low, size = self._size(s, oracle)
        ends = sites.ends(p, box, s.slopes().total(s.h))
        wave = noise.drawn(s.luck, i, p.sites, p.x.dtype)
        choice = sites.whole_choice(box, ends, size if p.costs is not None else size.long(), wave, self.jitter, p.costs)
        far = sites.blind(p, box, ends, i)
        point = torch.where(probing, torch.where(mine, box.far if far is None else far, box.x), choice)
        point = p.legal(point.view_as(p.x))
        m = p.margin(oracle.logits(point))
        z = (point - p.x).view_as(box.x) * probing
        s = self._looked(i, s, box, p)
        failed = ~probing & (oracle.tally.best_cost >= best)
        return replace(
            self._told(s, z, m - s.m, mine),
            m=torch.where(i == 0, m, s.m),
            low=torch.where(failed, size, torch.where(probing, s.low, low)),
        )

    def _size(self, s: State, oracle: Oracle) -> tuple[Tensor, Tensor]:
        """The largest choice that failed, as far as it still counts, and how large the next one is."""
        p, best = oracle.problem, oracle.tally.best_cost.to(s.low)
        found = oracle.tally.best_l0 <= p.sites
        # Choices are jittered: where the two ends have met, smaller ones get another try.
        low = torch.where(found & (best - s.low <= (best / 8).clamp(min=1)), best / 2, s.low)
        return low, torch.where(found, (low + best) / 2, 2 * low).clamp(min=1)

    def _looked(self, i: Tensor, s: State, box: Box, p: Problem) -> State:
        """Let the surrogate say what some sites do alone, other ones each time."""
        if s.h is None or self.surrogate is None:
            return s
        each = min(slopes.LOOKS, -(-p.sites // (1 + slopes.grid(p, self.most)[1])))
        where = ((i * each + torch.arange(each, device=i.device)) % p.sites).expand(len(p), -1)
        return replace(s, h=slopes.secants(self.surrogate, p, s.h, box.x, where, box.at(where).far))

    def _told(self, s: State, z: Tensor, rise: Tensor, mine: Tensor) -> State:
        """Lay what a tile did on its sites alike."""
        length = (z * z).flatten(1).sum(1)
        told = rise.isfinite() & (length > 0)
        rise, length = torch.where(told, rise, 0.0), length.clamp(min=1e-30)
        moved = mine & (z != 0).any(1)
        known = replace(
            s.known,
            g=s.known.g + z * ops.per_row(rise / length, z),
            doubt=s.known.doubt * (1 - moved * (SINGLE / mine.sum().clamp(min=1)))[:, None],
        )
        if s.h is None or s.seen is None or known.num is None or known.den is None:
            return replace(s, known=known)
        guess = (s.h * z).flatten(1).sum(1) * told
        known = replace(known, num=known.num + rise * guess, den=known.den + guess * guess)
        return replace(s, known=known, seen=s.seen + z * ops.per_row(guess / length, z))


def probes(p: Problem, most: int) -> int:
    """How many queries the clean input and the tiles take."""
    return 1 + slopes.grid(p, most)[1]
