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
from sigmazero.attacks._slopes import Slopes
from sigmazero.core import noise, ops
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Domain
from sigmazero.core.incumbents import Incumbents
from sigmazero.core.model import Ability
from sigmazero.core.oracle import Oracle

FIRST = 8  # sites of the first whole choice
SINGLE = 0.9  # how much of the doubt about a site goes when it was moved alone


@dataclass
class State:
    """One row per sample.

    m      margin of the clean input                    low    sites of the largest choice that failed
    """

    known: Slopes
    m: Tensor
    low: Tensor
    luck: Tensor


@dataclass(frozen=True, kw_only=True)
class Probe(Attack):
    """The clean input, then at most `most` tiles, then whole choices, each of them one query."""

    name: str = "query-swap"
    steps: int
    most: int
    jitter: float
    queries: int | None

    paper: ClassVar[str] = "docs/blackbox.md"
    needs: ClassVar[Ability] = "scores"
    unroll: ClassVar[int] = 1

    def init(self, oracle: Oracle) -> State:
        """Ask nothing yet."""
        p, d = oracle.problem, oracle.domain
        return State(
            known=slopes.begin(d),
            m=d.x.new_full((len(p),), torch.inf),
            low=d.x.new_full((len(p),), FIRST / 2),
            luck=noise.source(p.seed, p.ids),
        )

    def spent(self, incumbents: Incumbents) -> Tensor | None:
        """Rows for which another step could exceed the limit of queries."""
        return None if self.queries is None else sites.spent(incumbents, 1, self.queries)

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Ask about the clean input, a tile, or a whole choice."""
        d = oracle.domain
        x, tile = d.by_site(d.x), slopes.tiles(d, self.most)
        probing = i <= slopes.grid(d, self.most)[1]
        mine = tile == i - 1
        best = oracle.incumbents.best_cost
        low, size = self._size(s, oracle)
        ends = sites.ends(d, s.known.g)
        wave = noise.drawn(s.luck, i, d.sites, d.x.dtype)
        choice = sites.whole_choice(d, ends, size, wave, self.jitter)
        point = torch.where(probing, torch.where(mine, sites.blind(oracle, ends, i), x), choice)
        point = d.snap(point.view_as(d.x))
        m = oracle.goal.margin(oracle.logits(point))
        z = (point - d.x).view_as(x) * probing
        failed = ~probing & (oracle.incumbents.best_cost >= best)
        return replace(
            s,
            known=told(s.known, z, m - s.m, mine),
            m=torch.where(i == 0, m, s.m),
            low=torch.where(failed, size, torch.where(probing, s.low, low)),
        )

    def _size(self, s: State, oracle: Oracle) -> tuple[Tensor, Tensor]:
        """The largest choice that failed, as far as it still counts, and how large the next one is."""
        best = oracle.incumbents.best_cost.to(s.low)
        found = oracle.incumbents.best_l0 <= oracle.domain.sites
        # Choices are jittered: where the two ends have met, smaller ones get another try.
        low = torch.where(found & (best - s.low <= (best / 8).clamp(min=1)), best / 2, s.low)
        return low, torch.where(found, (low + best) / 2, 2 * low).clamp(min=1)


def told(known: Slopes, z: Tensor, rise: Tensor, mine: Tensor) -> Slopes:
    """What is known after a tile was moved by z alone: what that did, laid on its sites alike."""
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
    """How many queries the clean input and the tiles take."""
    return 1 + slopes.grid(d, most)[1]
