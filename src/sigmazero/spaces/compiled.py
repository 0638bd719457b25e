"""A space compiled to tensors: which values each feature may take around given inputs, and what counts once.

Tensors are over flat features, in the user's units. A snapped point is made in these units, so that the model is
asked about what is reported, to the bit. An input outside its own space is named here, with its feature.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sigmazero.core.domain import WHOLE as COMBINED
from sigmazero.spaces.repair import Around, RuleRepair
from sigmazero.spaces.space import SLACK, WHOLE, Columns, Floats, Space

FINE = 100  # steps of a feature: with more of them its values are drawn as real ones are
INSIDE = 7  # values between the ends of such a feature that are tried as single changes
MAX_VALUES = 4096  # legal values of a feature that are tried as single changes; of more the ends alone
TIE = 2**-16  # part of the cheapest cost that each change costs more
JOIN = 8  # features that are tried as the first to join where a change breaks a rule
LOWER, UPPER, VALUE, SHARE = 0, 1, 2, 3  # kinds of values of a single change; a share of the way between the ends


@dataclass(frozen=True, eq=False)
class SiteLayout:
    """Sites of several features: (features of a site, sites), which feature stands where, and which places are none.

    `back` is where each feature stands; `one_hot` says which sites are one-hot groups, None if there is none.
    """

    index: Tensor
    pad: Tensor
    back: Tensor
    one_hot: Tensor | None

    @classmethod
    def make(cls, columns: Columns, device: torch.device) -> SiteLayout | None:
        """Return None where every feature is a site of its own."""
        grouped = {k for group in columns.groups for k in group.members}
        found = [(group.members, group.one_hot) for group in columns.groups]
        found += [((k,), False) for k in range(len(columns.kind)) if k not in grouped]
        found.sort()
        depth = max(len(members) for members, _ in found)
        if depth == 1:
            return None
        index, pad = np.zeros((depth, len(found)), dtype=np.int64), np.ones((depth, len(found)), dtype=bool)
        for site, (members, _) in enumerate(found):
            index[: len(members), site], pad[: len(members), site] = members, False
        back = np.zeros(len(columns.kind), dtype=np.int64)
        back[index[~pad]] = np.flatnonzero(~pad.ravel())
        one_hot = [hot for _, hot in found]
        at, none, places = (torch.as_tensor(array, device=device) for array in (index, pad, back))
        return cls(at, none, places, torch.tensor(one_hot, device=device) if any(one_hot) else None)

    def sites(self, flat: Tensor) -> Tensor:
        """Return values (..., features) as (..., features of a site, sites), 0 (or False) where there is no feature."""
        return flat[..., self.index].masked_fill(self.pad, 0)

    def flat(self, by_site: Tensor) -> Tensor:
        """Return values (..., features of a site × sites) as (..., features)."""
        return by_site[..., self.back]


@dataclass(frozen=True, eq=False)
class LegalValues:
    """The legal values of flat features inside their ends: whole multiples of a step, a finite set, or all.

    stepped   features with values k · times / per
    discrete  these, and those with a finite set
    at        features with a finite set, one row of `tables` each, padded with infinity
    """

    stepped: Tensor
    discrete: Tensor
    times: Tensor
    per: Tensor
    at: Tensor
    tables: Tensor

    @classmethod
    def make(cls, columns: Columns, device: torch.device | None = None) -> LegalValues:
        """Put the arrays of a space on a device."""
        tables, _ = _padded(list(columns.tables.values()))
        at = np.array(list(columns.tables), dtype=np.int64)
        stepped = columns.per > 0
        discrete = stepped | np.isin(np.arange(len(stepped)), at)
        arrays = (stepped, discrete, columns.times, np.maximum(columns.per, 1), at, tables)
        return cls(*(torch.as_tensor(array, device=device) for array in arrays))

    @property
    def whole(self) -> Tensor:
        """Return the features whose legal values are whole numbers, however large."""
        return self.stepped & (self.per == 1) & (self.times == self.times.round())

    def nearest(self, values: Tensor) -> Tensor:
        """Return the nearest legal values to (..., features), in float64; ends and groups are not looked at."""
        found = values.double()
        found = torch.where(self.stepped, torch.round(found * self.per / self.times) * self.times / self.per, found)
        if len(self.at):
            some = found[..., self.at]
            nearest = (some[..., None] - self.tables).abs().argmin(-1)
            picked = self.tables.expand(*some.shape, -1).gather(-1, nearest[..., None]).squeeze(-1)
            found = found.index_copy(-1, self.at, picked)
        return found

    def beyond(self, values: Tensor, rising: Tensor) -> Tensor:
        """Return the next legal values (..., features) upwards, or downwards where nothing rises, in float64."""
        steps = values * self.per / self.times
        whole = torch.where(rising, torch.ceil(steps - SLACK), torch.floor(steps + SLACK))
        found = torch.where(self.stepped, whole * self.times / self.per, values)
        if len(self.at):
            some, up = found[..., self.at, None], rising[..., self.at]
            slack = SLACK * some.abs()
            above = self.tables.masked_fill(self.tables < some - slack, torch.inf).amin(-1)
            below = self.tables.masked_fill((self.tables > some + slack) | self.tables.isinf(), -torch.inf).amax(-1)
            found = found.index_copy(-1, self.at, torch.where(up, above, below))
        return found


@dataclass(frozen=True, eq=False)
class CompiledSpace:
    """A space that is more than a box, over flat features.

    shape     of one of the user's inputs; with `channels` above 1 the channels of a position count once
    layout    groups as sites of several features; None where every feature is a site of its own
    values    which values are legal; `few` are features with at most FINE + 1 of them
    many      numbers with more than two values: those of few, and inner ones
    inner     features of rows with more values between finite ends, where some are drawn; of images none, whose ends
              do as well. `likely` (features, most) are values to draw besides uniform ones, `likelies` how many
    prices    of a change of each site, in the user's unit; None where each is 1
    costs     the same as the search has them (see `relative`); None where they are all alike
    repair    the rules that tie features to each other; None where there are none
    derived   features that follow from others
    """

    space: Space
    columns: Columns
    shape: tuple[int, ...]
    channels: int
    layout: SiteLayout | None
    values: LegalValues
    few: Tensor
    many: Tensor
    inner: Tensor
    draws_inside: bool
    likely: Tensor
    likelies: Tensor
    prices: Tensor | None
    costs: Tensor | None
    repair: RuleRepair | None
    derived: Tensor

    @classmethod
    def make(
        cls, space: Space, columns: Columns, shape: tuple[int, ...], pixels: int, x: Tensor
    ) -> CompiledSpace | None:
        """Return None where the space is a box. `pixels` is how many channels count once, 1 if each counts."""
        device = x.device
        layout = SiteLayout.make(columns, device)
        costs = columns.cost.reshape(pixels, -1)
        if (costs != costs[:1]).any():
            raise ValueError("space: the channels of a pixel cost differently; with unit='pixel' a pixel has one cost")
        cost = torch.as_tensor(costs[0], device=device)
        by_site = cost if layout is None else layout.sites(cost).amax(0)
        alike = bool((by_site == by_site[:1]).all())
        repair = RuleRepair.make(columns, shape, device)
        wide = (columns.upper - columns.lower) * np.maximum(columns.per, 1) / columns.times  # in steps
        few = (columns.per > 0) & (wide <= FINE)
        few[list(columns.tables)] = True
        inner = ~few & np.isfinite(columns.upper - columns.lower) & (columns.lower < columns.upper) & (len(shape) == 1)
        inner[[] if repair is None else list(columns.laws.at)] = False
        many = inner | (few & (wide >= 2))
        for k, table in columns.tables.items():
            many[k] = len(table) > 2
        more = (columns.per > 0).any() or columns.tables or layout is not None or inner.any()
        if not (more or not alike or space.accept or repair):
            return None
        likely, likelies = _padded(columns.likely)
        return cls(
            space=space,
            columns=columns,
            shape=shape,
            channels=pixels,
            layout=layout,
            values=LegalValues.make(columns, device),
            few=torch.as_tensor(few, device=device),
            many=torch.as_tensor(many, device=device),
            inner=torch.as_tensor(inner, device=device),
            draws_inside=bool(inner.any()),
            likely=torch.as_tensor(likely, device=device).to(x.dtype),
            likelies=torch.as_tensor(likelies, device=device),
            prices=None if bool((by_site == 1).all()) else by_site.to(x.dtype),
            costs=None if alike else relative(by_site).to(x.dtype),
            repair=repair,
            derived=torch.zeros(len(few), dtype=torch.bool, device=device) if repair is None else repair.derived,
        )

    @property
    def derives(self) -> bool:
        """Return whether some features follow from others."""
        return self.repair is not None and bool(self.repair.laws.at)

    @property
    def sites(self) -> int:
        """Return how many things can change."""
        return math.prod(self.shape) // self.channels if self.layout is None else self.layout.index.shape[1]

    def members(self, site: int) -> list[int]:
        """Return the flat features of a site."""
        if self.layout is None:
            return list(range(site, math.prod(self.shape), self.sites))
        found: list[int] = self.layout.index[:, site][~self.layout.pad[:, site]].tolist()
        return found

    def singles(self) -> Iterator[tuple[int, list[int], list[float], int]]:
        """Yield every single change: its site, for each feature the kind of value and the value, and its partner.

        Where rules tie a site to others, a change comes once more for each feature that may join it first.
        """
        for site in range(self.sites):
            members = self.members(site)
            partners = 0 if self.repair is None else min(JOIN, self.repair.partners(members))
            for (kinds, values), partner in product(self._changes(site, members), range(1 + partners)):
                yield site, kinds, values, partner

    def _changes(self, site: int, members: list[int]) -> list[tuple[list[int], list[float]]]:
        """Return the changes of one site: for each feature an end, or a value in the user's units."""
        n = len(members)
        if self.repair is not None and members[0] in self.repair.laws.at:
            return []  # it follows from others
        if self.layout is not None and self.layout.one_hot is not None and bool(self.layout.one_hot[site]):
            return [([VALUE] * n, [float(k == chosen) for k in range(n)]) for chosen in range(n)]
        if n == 1 and (values := self._listed(members[0])) is not None:
            return [([VALUE], [float(value)]) for value in values]
        ends = product((LOWER, UPPER), repeat=n) if n <= COMBINED else [(end,) * n for end in (LOWER, UPPER)]
        found = [(list(end), [0.0] * n) for end in ends]
        if n == 1 and bool(self.inner[members[0]]):
            found += [([SHARE], [share / (INSIDE + 1)]) for share in range(1, INSIDE + 1)]
            found += [([VALUE], [float(value)]) for value in self.columns.likely[members[0]]]
        return found

    def _listed(self, feature: int) -> Floats | None:
        """Return all legal values of a flat feature in the user's units; None if there are more than MAX_VALUES."""
        columns = self.columns
        if feature in columns.tables:
            return columns.tables[feature]
        if columns.per[feature] == 0:
            return None
        steps = columns.per[feature] / columns.times[feature]
        first, last = columns.lower[feature] * steps, columns.upper[feature] * steps
        if not last - first < MAX_VALUES:
            return None
        every: Floats = np.arange(np.ceil(first - SLACK), np.floor(last + SLACK) + 1)
        return np.asarray(every * columns.times[feature] / columns.per[feature])

    def snap(self, values: Tensor, x: Tensor, lower: Tensor, upper: Tensor, keys: Tensor | None = None) -> Tensor:
        """Return the legal values nearest to (..., features) of the user's; the clean value keeps its bits."""
        values = torch.clamp(values, lower, upper)
        legal, discrete = self.values.nearest(values), self.values.discrete
        same = legal == self.values.nearest(x)
        found = torch.clamp(legal.to(x.dtype), lower, upper)
        found = torch.where(discrete & same, x, torch.where(discrete, found, values))
        found = found if self.layout is None else self._one_category(found, values, x)
        return found if self.repair is None else self.repair.apply(found, Around(x, lower, upper), self, keys)

    def own_bits(self, values: Tensor, x: Tensor) -> Tensor:
        """Return legal values (..., features) in the format of the inputs; those of the clean input keep its bits."""
        same = self.values.discrete & (self.values.nearest(values) == self.values.nearest(x))
        return torch.where(same, x, values.to(x.dtype))

    def touched(self, different: Tensor) -> Tensor:
        """Return which features (..., features) belong to a site with a change."""
        if self.layout is None:
            return different
        sites = self.layout.sites(different).any(-2, keepdim=True)
        return self.layout.flat(sites.expand(*sites.shape[:-2], *self.layout.index.shape).flatten(-2))

    def chosen(self, different: Tensor) -> Tensor:
        """Leave out derived features, which no attack chose to change: (rows, ...) of the user's."""
        return different & ~self.derived.view(self.shape)

    def _one_category(self, found: Tensor, values: Tensor, x: Tensor) -> Tensor:
        """Give each one-hot group the category of its largest value; the clean one where that is among them."""
        layout = self.layout
        assert layout is not None
        if layout.one_hot is None:
            return found
        given, clean = layout.sites(values).masked_fill(layout.pad, -torch.inf), layout.sites(x)
        top = given.amax(-2, keepdim=True)
        stays = ((given == top) & (clean == 1)).any(-2, keepdim=True)
        places = torch.arange(len(layout.index), device=x.device)[:, None]
        winner = (places == given.argmax(-2, keepdim=True)).to(x.dtype)
        chosen = torch.where(layout.one_hot, torch.where(stays, clean, winner), layout.sites(found))
        return layout.flat(chosen.flatten(-2))

    def inside(self, flat: Tensor) -> Tensor:
        """Return tensors (rows, features) in the shape of the search."""
        if self.layout is None:
            return flat.view(len(flat), *self.shape)
        return self.layout.sites(flat)[..., None, None]

    def outside(self, inner: Tensor, rank: int) -> Tensor:
        """Return points of the search, whose inputs have `rank` dimensions, as (rows, features) or (rows, K, ...)."""
        flat = inner.flatten(inner.ndim - rank + 1)
        return flat if self.layout is None else self.layout.flat(flat)

    def check(self, x: Tensor, lower: Tensor, upper: Tensor) -> None:
        """Refuse inputs that break a rule themselves."""
        if self.repair is not None and len(x):
            self.repair.check(x.flatten(1), self._around(x, lower, upper), self)

    def _around(self, *tensors: Tensor) -> Around:
        return Around(*(t.expand(len(t), *self.shape).flatten(1) for t in tensors))

    def legal(self, points: Tensor, x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """Return which of the user's points keep every rule but the ends, which the domain judges: in float64.

        The ends of derived features are judged here.
        """
        flat, clean = points.flatten(1).double(), x.flatten(1).double()
        tolerance = 4 * torch.finfo(points.dtype).eps * flat.abs().clamp(min=1)
        tolerance = torch.where(self.values.whole, tolerance.clamp(max=WHOLE), tolerance)
        legal = (flat == clean) | ((flat - self.values.nearest(flat)).abs() <= tolerance)
        good = (legal | self.derived).all(1)
        for group in self.columns.groups:
            if group.one_hot:
                some = flat[:, list(group.members)]
                good = good & ((some == 0) | (some == 1)).all(1) & (some.sum(1) == 1)
        if self.repair is not None:
            broken = self.repair.broken(points.flatten(1), self._around(x, lower, upper), self)
            good = good & ~broken.any(1)
        return good

    def accepted(self, points: Tensor, x: Tensor) -> Tensor:
        """Ask the user's own judge, and check what it returns."""
        assert self.space.accept is not None
        answer = torch.as_tensor(self.space.accept(points, x), device=points.device)
        if answer.shape != (len(points),) or answer.dtype != torch.bool:
            what = f"shape {tuple(answer.shape)} and dtype {answer.dtype}"
            raise ValueError(f"space: accept returned {what} for {len(points)} points; return one boolean per point")
        return answer


def _padded(rows: list[Floats]) -> tuple[Floats, NDArray[np.int64]]:
    """Return rows of different lengths as one array, padded with infinity, and their lengths."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    found = np.full((len(rows), lengths.max(initial=0)), np.inf)
    for at, row in enumerate(rows):
        found[at, : len(row)] = row
    return found, lengths


def relative(prices: Tensor) -> Tensor:
    """Divide prices (S,) by their mean, so that a search does not depend on the user's unit.

    They keep the digits of float32, which are the same in every unit. Each change costs a little more, so that of two
    points of one price the one with fewer changes is cheaper, whatever rounding does to their sums.
    """
    costs = prices.double() / prices.double().mean()
    return (costs + TIE * costs.amin()).float()


def within(
    space: Space, x: Tensor, pixels: bool, mask: Tensor | None
) -> tuple[Tensor, Tensor, CompiledSpace | None, float]:
    """Return the ends of every feature around the inputs, in their dtype, the compiled space, and a price.

    In a box every change has that price.
    """
    shape = tuple(x.shape[1:])
    columns = space.columns(shape)
    channels = shape[0] if pixels and len(shape) > 1 else 1
    if columns.groups and channels > 1:
        raise ValueError("space: unit='pixel' and groups are both given; make pixels groups with Space.pixels(shape)")
    legal = LegalValues.make(columns)
    lower, upper = _legal_ends(columns, legal)
    values = x.flatten(1).double().cpu()
    _check_inputs(values.numpy(), lower.numpy(), upper.numpy(), columns, legal, 4 * torch.finfo(x.dtype).eps)
    _check_mask(columns, mask, x)
    if len(columns.rise) not in (1, len(x)):
        raise ValueError(f"space: directions of {len(columns.rise)} samples for {len(x)} inputs; give one row for each")
    low, high = lower[None], upper[None]
    around, rise, fall = (torch.from_numpy(array) for array in (columns.around, columns.rise, columns.fall))
    if bool(around.isfinite().any()):
        # Without the rounding of their format: 8 steps around are 8, not 7.
        centre = torch.where(legal.stepped, legal.nearest(values), values)
        rising = torch.ones_like(values, dtype=torch.bool)
        low = low.maximum(legal.beyond(centre - around, rising))
        high = high.minimum(legal.beyond(centre + around, ~rising))
    high = high if bool(rise.all()) else torch.where(rise, high, values)
    low = low if bool(fall.all()) else torch.where(fall, low, values)
    # In the dtype of the inputs, and never so rounded that an input is outside.
    ends = [v.to(x).view(len(v), *shape) for v in (low, high)]
    if len(x):
        ends[0] = torch.minimum(ends[0], x if len(low) > 1 else x.amin(0, keepdim=True))
        ends[1] = torch.maximum(ends[1], x if len(high) > 1 else x.amax(0, keepdim=True))
    return ends[0], ends[1], CompiledSpace.make(space, columns, shape, channels, x), float(columns.cost[0])


def _legal_ends(columns: Columns, legal: LegalValues) -> tuple[Tensor, Tensor]:
    """Return the outermost legal values between the ends of each feature."""
    ends = torch.from_numpy(columns.lower), torch.from_numpy(columns.upper)
    rising = torch.ones_like(ends[0], dtype=torch.bool)
    lower, upper = legal.beyond(ends[0], rising) + 0.0, legal.beyond(ends[1], ~rising) + 0.0  # no minus zero
    if bool((lower > upper).any()):
        k = int((lower > upper).nonzero()[0])
        words = f"{columns.lower[k]:g} and {columns.upper[k]:g}"
        raise ValueError(f"space: feature {columns.labels[k]} has no legal value between {words}; widen the ends")
    return lower, upper


def _check_inputs(
    values: Floats, lower: Floats, upper: Floats, columns: Columns, legal: LegalValues, eps: float
) -> None:
    """Refuse inputs that are not in the space themselves."""

    def refuse(wrong: NDArray[np.bool_], words: Callable[[int, float], str], fix: str) -> None:
        if wrong.any():
            row, k = (int(v) for v in np.argwhere(wrong)[0])
            value = f"feature {columns.labels[k]} of input row {row} is {values[row, k]:g}"
            raise ValueError(f"space: {value}, which {words(k, values[row, k])}; {fix}")

    def multiple(k: int, value: float) -> str:
        step = columns.times[k] / max(columns.per[k], 1)
        near = round(value / step) * step
        more = f" (it is {abs(near - value):.2g} off)" if f"{near:g}" == f"{value:g}" else ""
        return f"is no multiple of {step:g}{more}"

    slack = eps * np.maximum(1, np.abs(values))
    outside = (values < lower - slack) | (values > upper + slack)
    refuse(outside, lambda k, _: f"is not between {lower[k]:g} and {upper[k]:g}", "widen the ends or correct the input")
    slack = np.where(legal.whole.numpy(), np.minimum(slack, WHOLE), slack)
    off = np.abs(legal.nearest(torch.from_numpy(values)).numpy() - values) > slack
    stepped = legal.stepped.numpy()
    refuse(off & stepped, multiple, "round the inputs or change the feature's kind or grid")
    refuse(off & ~stepped, lambda *_: "is none of its values", "add it to values=")
    for group in columns.groups:
        if group.one_hot:
            wrong = values[:, list(group.members)].sum(1) != 1
            if wrong.any():
                row = int(np.argmax(wrong))
                total = values[row, list(group.members)].sum()
                raise ValueError(
                    f"space: in input row {row} the one-hot group {group.name!r} (with feature "
                    f"{columns.labels[group.members[0]]}) sums to {total:g}; exactly one of its features must be 1"
                )


def _check_mask(columns: Columns, mask: Tensor | None, x: Tensor) -> None:
    """Refuse a mask that frees a part of a one-hot group."""
    if mask is None:
        return
    flat = mask.cpu().expand(x.shape).reshape(len(x), math.prod(x.shape[1:])).numpy()
    for group in columns.groups:
        some = flat[:, list(group.members)]
        if group.one_hot and (some != some[:, :1]).any():
            raise ValueError(f"space: the mask frees a part of one-hot group {group.name!r}; free all of it or none")
