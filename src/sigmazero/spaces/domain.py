"""What may change in a declared space, as a search needs it.

Attacks walk through the box between 0 and 1. Where a space is more than a box, the oracle asks about the legal point
nearest to the one it was shown: whole steps, values of finite sets, one category of a group, no rule broken.

Features that count once are laid out as one site with several channels: inputs of a space with groups have the search
shape (N, features of the largest site, sites, 1, 1), padded with features that cannot change. The last two dimensions
say that sites have no neighbours.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sigmazero.core.domain import (
    Accept,
    Counts,
    Domain,
    Draw,
    Moves,
    Unit,
    count_features,
    count_pixels,
    enclosed,
    make_box,
    scale,
)
from sigmazero.spaces.compiled import JOIN, LOWER, SHARE, VALUE, CompiledSpace, within
from sigmazero.spaces.space import Space

WITHIN = 0.3  # share of values that are drawn between the ends, where there are many
FINEST = 2.0**-10  # of the way: closer to the boundary rounding would decide


def make_domain(space: Space, x: Tensor, unit: Unit, free: Tensor | None) -> Domain:
    """Make the domain of a space around inputs; a space that is no more than a box has a plain `Domain`."""
    lower, upper, compiled, price = within(space, x, unit == "pixel", free)
    derives = compiled is not None and compiled.derives
    lower, upper, free, per_sample = enclosed(x, lower, upper, free, derives)
    if bool((lower == upper).any()):
        free = lower < upper
    if compiled is None:
        return make_box(x, lower, upper, free, unit, per_sample, price)
    compiled.check(x, lower, upper)
    return SpaceDomain.make(compiled, x, lower, upper, free, unit, per_sample)


@dataclass(frozen=True, eq=False)
class SpaceDomain(Domain):
    """A compiled space around a batch of inputs."""

    compiled: CompiledSpace = field(kw_only=True)

    needs_exploring = True

    @classmethod
    def make(
        cls,
        compiled: CompiledSpace,
        x: Tensor,
        lower: Tensor,
        upper: Tensor,
        free: Tensor | None,
        unit: Unit,
        per_sample: bool,
    ) -> SpaceDomain:
        """Lay the inputs out in search coordinates; derived features stay as they are there."""
        shape = x.shape[1:]
        low, high = (t.expand(len(t), *shape).flatten(1) for t in (lower, upper))
        user_lower, user_upper = (t.view(-1, *shape) for t in (low, high))
        offset, width = scale(low, high)
        bounded, flat = (high - low).isfinite(), x.flatten(1)
        open_mask = None if free is None else free.expand(len(free), *shape).flatten(1)
        if compiled.derives:
            low, high = (torch.where(compiled.derived, flat, end) for end in (low, high))
            open_mask = low < high
        fixed, least, most = low == high, (low - offset) / width, (high - offset) / width
        channels = unit == "pixel" and x.ndim > 2 and x.shape[1] > 1
        return cls(
            user_x=x,
            user_lower=user_lower,
            user_upper=user_upper,
            x=compiled.inside(torch.clamp((flat - offset) / width, least, most)),
            lower=compiled.inside(torch.where(fixed, least, torch.where(bounded, 0.0, low))),
            upper=compiled.inside(torch.where(fixed, least, torch.where(bounded, 1.0, high))),
            free=None if open_mask is None else compiled.inside(open_mask),
            unit=unit,
            joined=channels or compiled.layout is not None,
            per_sample=per_sample,
            compiled=compiled,
        )

    @property
    def snaps(self) -> bool:
        """Return whether the space is more than ends."""
        space = self.compiled
        return (
            bool(space.values.discrete.any())
            or space.layout is not None
            or self.tied
            or self.weighted
            or self.accept is not None
        )

    @property
    def weighted(self) -> bool:
        """Return whether some changes cost more than others."""
        return self.compiled.costs is not None

    @property
    def tied(self) -> bool:
        """Return whether rules tie features to each other."""
        return self.compiled.repair is not None

    @property
    def shrinks(self) -> bool:
        """Return what the space says; without a word rows of named features do so."""
        space = self.compiled.space
        usual = space.names is not None and len(self.compiled.shape) == 1
        return usual if space.smallest is None else space.smallest

    @property
    def finest(self) -> Tensor:
        """Return 0 for whole steps and finite sets, which end by themselves, and FINEST for real numbers."""
        space = self.compiled
        real = ~space.values.discrete & ~space.derived
        some = [space.inside(v[None]).reshape(-1, self.sites).any(0) for v in (real, space.many & ~real)]
        return torch.where(some[0], FINEST, torch.where(some[1], 0.0, torch.inf)).to(self.x)

    @property
    def accept(self) -> Accept | None:
        """Return the user's own judge."""
        return None if self.compiled.space.accept is None else self.compiled.accepted

    @property
    def costs(self) -> Tensor:
        """Return what a change of each site costs in the search."""
        return self.x.new_ones(self.sites) if self.compiled.costs is None else self.compiled.costs

    @property
    def weights(self) -> Tensor | float:
        """Return the costs, shaped to multiply x; exactly 1.0 where they are all alike."""
        costs = self.compiled.costs
        return 1.0 if costs is None else costs.view(1, *((1, *self.x.shape[2:]) if self.joined else self.x.shape[1:]))

    def snap(self, a: Tensor) -> Tensor:
        """Return the nearest legal point."""
        return self._snapped(a)

    def complete(self, a: Tensor, order: Draw) -> Tensor:
        """Keep the rules; the point itself where there are none."""
        return self._snapped(a, order()) if self.tied else a

    def allowed(self, a: Tensor) -> Tensor:
        """Clip and snap."""
        return self._snapped(self.clip(a))

    def _snapped(self, a: Tensor, keys: Tensor | None = None) -> Tensor:
        """Return the legal point nearest to one, or to several per sample.

        `keys`, of the shape of `a`, name features that may join where a rule is broken (see `RuleRepair.apply`).
        """
        space, rank = self.compiled, self.x.ndim
        several = a.ndim > rank
        clipped = torch.clamp(a, *(_beside(t, several) for t in (self.lower, self.upper)))
        user = self._user(clipped, keys=keys).flatten(-len(space.shape))
        x, offset, width = (_beside(t, several) for t in self._flat())
        inner = (user - offset) / width
        same = user == x
        own = _beside(space.outside(self.x, rank), several)
        # A real value stays as it was: there and back it could become another one by rounding.
        moved = space.values.discrete
        if space.repair is not None:
            moved = moved | (user != self._user(clipped, snap=False).flatten(-len(space.shape)))
            same = same | space.derived
        found = torch.where(same, own, torch.where(moved, inner, space.outside(clipped, rank)))
        if not several:
            return space.inside(found)
        return space.inside(found.flatten(0, 1)).view(*a.shape)

    def best_values(self, g: Tensor) -> Tensor:
        """Return the better end of each feature; in a one-hot group the best other category."""
        lower, upper = self.by_site(self.lower), self.by_site(self.upper)
        end, layout = torch.where(g <= 0, upper, lower), self.compiled.layout
        if layout is None or layout.one_hot is None:
            return end
        x = self.by_site(self.x)
        best = g.masked_fill(layout.pad | (x == 1), torch.inf).argmin(1, keepdim=True)
        category = (torch.arange(x.shape[1], device=g.device)[:, None] == best).to(x.dtype)
        return torch.where(layout.one_hot & (lower < upper), category, end)

    def draw(self, u: Tensor) -> Tensor:
        """Return a random legal point: any value where there are few, else an end; of rows some values inside."""
        space = self.compiled
        end, room = torch.where(u < 0.5, self.lower, self.upper), self.upper - self.lower
        found = torch.where(space.inside(space.few[None]), self.lower + u * room, end)
        if space.draws_inside:
            known = space.inside((space.inner & (space.likelies > 0))[None])
            v = (u - 1 + WITHIN) / WITHIN  # the rest is for the ends
            between = self.lower + torch.where(known, 2 * v, v) * room
            if space.likely.shape[1]:
                between = torch.where(known & (v >= 0.5), self._likely(2 * v - 1), between)
            within = torch.where(v >= 0, between, torch.where(2 * u < 1 - WITHIN, self.lower, self.upper))
            found = torch.where(space.inside(space.inner[None]) & room.isfinite(), within, found)
        return self._snapped(found)

    def _likely(self, v: Tensor) -> Tensor:
        """Return a likely value of each feature for numbers in [0, 1), in search coordinates."""
        space = self.compiled
        which = (space.outside(v, self.x.ndim).clamp(min=0) * space.likelies).long()
        user = space.likely.expand(len(which), -1, -1).gather(2, which[..., None])[..., 0]
        _, offset, width = self._flat()
        return space.inside((user - offset) / width)

    def sample(self, u: Draw, ends: Tensor) -> Tensor:
        """Replace the ends where a feature has few values, or of rows some inside."""
        space = self.compiled
        drawn = space.inside((space.few | space.inner)[None])
        return torch.where(self.by_site(drawn), self.by_site(self.draw(u())), ends)

    @property
    def several(self) -> Tensor | None:
        """Return the sites of categories and finite sets with more than two values; of rows numbers too."""
        space, one_hot = self.compiled, self.categories
        row = len(space.shape) == 1
        if not row and one_hot is None and not len(space.values.at):
            return None
        numbers = space.many if row else space.many & space.values.discrete & ~space.values.stepped
        found = self.by_site(space.inside(numbers[None])).any(1)
        if one_hot is None:
            return found
        assert space.layout is not None
        return found | (one_hot & ((~space.layout.pad).sum(0) > 2))

    @property
    def categories(self) -> Tensor | None:
        """Return which sites are one-hot groups."""
        return None if self.compiled.layout is None else self.compiled.layout.one_hot

    @property
    def single_changes(self) -> int:
        """Count the single changes."""
        return sum(1 for _ in self.compiled.singles())

    def moves(self) -> Moves:
        """List every single change."""
        device, depth = self.x.device, self.features // self.sites
        singles = [
            (site, kinds + [LOWER] * (depth - len(kinds)), values + [0.0] * (depth - len(values)), partner)
            for site, kinds, values, partner in self.compiled.singles()
        ]
        sites, kinds, values, partners = zip(*singles, strict=True) if singles else ((), (), (), ())
        site = torch.tensor(sites, dtype=torch.int64, device=device)
        kind = torch.tensor(kinds, dtype=torch.int64, device=device).view(-1, depth).T
        value = torch.tensor(values, dtype=torch.float64, device=device).view(-1, depth).T
        where = site.expand(len(self), depth, len(site))
        lower, upper = (self.by_site(end).gather(2, where) for end in (self.lower, self.upper))
        ends = torch.where(kind == LOWER, lower, upper)
        _, offset, width = self._flat()
        offset, width = (self.by_site(self.compiled.inside(v)).gather(2, where) for v in (offset, width))
        inner = (value - offset.double()) / width.double().clamp(min=torch.finfo(torch.float64).tiny)
        ends = torch.where(kind == SHARE, lower + value.to(ends.dtype) * (upper - lower), ends)
        value = torch.where(kind == VALUE, inner.to(ends.dtype), ends)
        return Moves(site, value, torch.tensor(partners, dtype=torch.int64, device=device))

    def partners(self, partner: Tensor) -> Tensor:
        """Let each feature of a rule be the first to join, by its turn."""
        assert self.compiled.repair is not None  # else nothing joins
        order = self.compiled.repair.order
        first = torch.remainder(order - (partner[..., None] - 1), JOIN + 1) / (JOIN + 1)
        found = torch.where((partner[..., None] == 0) | (order < 0), torch.inf, first)
        return self.compiled.inside(found.flatten(0, -2)).view(*partner.shape, *self.x.shape[1:])

    @property
    def user_costs(self) -> Tensor:
        """Return what a change of each site costs in the user's unit."""
        return self.x.new_ones(self.sites) if self.compiled.prices is None else self.compiled.prices

    def to_user(self, a: Tensor) -> Tensor:
        """Return the nearest legal points in the user's units and shape."""
        return self._user(a)

    def _user(self, a: Tensor, snap: bool = True, keys: Tensor | None = None) -> Tensor:
        space, rank = self.compiled, self.x.ndim
        several = a.ndim > rank
        flat = space.outside(a, rank)
        x, offset, width = (_beside(t, several) for t in self._flat())
        clean, top = (_beside(space.outside(t, rank), several) for t in (self.x, self.upper))
        lower, end = (_beside(t.flatten(1), several) for t in (self.user_lower, self.user_upper))
        user = offset + flat * width
        user = torch.where(flat < top, user.minimum(end), torch.where(flat == top, end, user))
        user = torch.where(flat == clean, x, user)
        if snap:
            user = space.snap(user, x, lower, end, None if keys is None else space.outside(keys, rank))
        return user.reshape(*a.shape[: a.ndim - rank + 1], *space.shape)

    def from_user(self, points: Tensor) -> Tensor:
        """Scale back and lay out by sites; derived features stay as they are."""
        space, flat = self.compiled, points.flatten(1)
        x, offset, width = self._flat()
        same = (flat == x) | space.derived
        return space.inside(torch.where(same, space.outside(self.x, self.x.ndim), (flat - offset) / width))

    def traced(self, points: Tensor) -> Tensor:
        """Connect derived features with what they follow from."""
        return points if self.compiled.repair is None else self.compiled.repair.through(points)

    def pull(self, grad: Tensor) -> Tensor:
        """Pass a gradient straight through the snap."""
        flat = grad.flatten(1)
        if self.compiled.derives:  # a user's function may have no slope somewhere
            flat = torch.nan_to_num(flat, 0.0, 0.0, 0.0)
        found = self.compiled.inside(flat * self._flat()[2])
        return found if self.free is None else found * self.free

    def within(self, points: Tensor) -> Tensor:
        """Return which points lie between the ends; derived features have theirs judged by `legal`."""
        outside = torch.clamp(points, self.user_lower, self.user_upper) != points
        return ~self.compiled.chosen(outside).flatten(1).any(1)

    def legal(self, points: Tensor) -> Tensor:
        """Return which points also keep values, groups and rules."""
        return self.within(points) & self.compiled.legal(points, self.user_x, self.user_lower, self.user_upper)

    def count(self, points: Tensor) -> Counts:
        """Count changes; derived features, which follow from others, are not counted."""
        different, layout = self.compiled.chosen(points != self.user_x), self.compiled.layout
        chosen = torch.where(different, points, self.user_x)
        features, pixels = count_features(chosen, self.user_x), count_pixels(chosen, self.user_x)
        if layout is not None:
            changed = layout.sites(different.flatten(1)).any(1)
        else:
            changed = (different.any(1) if self.joined else different).flatten(1)
        prices = self.compiled.prices
        sites = changed.sum(1)
        cost = sites if prices is None else (changed.to(points.dtype) * prices).sum(1)
        return Counts(sites, features if self.unit == "pixel" else sites, pixels, cost)

    def _flat(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the user's inputs, where the box begins and how wide it is, as (rows, features)."""
        offset, width = scale(self.user_lower.flatten(1), self.user_upper.flatten(1))
        return self.user_x.flatten(1), offset, width

    def key(self) -> Hashable:
        """Return what a captured step has built in; a compiled space is only equal to itself."""
        return super().key(), self.compiled


def _beside(own: Tensor, several: bool) -> Tensor:
    """Shape a tensor of the domain to fit one point per sample, or several."""
    return own.unsqueeze(1) if several else own
