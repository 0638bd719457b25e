"""A space as a search needs it: tensors on the device that turn any point into the legal one next to it.

Attacks walk through the box between 0 and 1. Where a space is more than a box, the oracle asks about the legal point
nearest to the one it was shown: whole steps, values of finite sets, one category of a group. That point is made in the
user's own units, so that what was asked is what is reported, to the bit.

Features that count once are laid out as one site with several channels, as in pixel unit: the inner problem of a space
with groups has inputs of shape (N, features of the largest site, sites, 1, 1), padded with features that cannot change.
Attacks need not know. The last two dimensions say that sites have no neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from sigmazero.core.ops import scale
from sigmazero.core.space import SLACK, WHOLE, Accept, Columns, Floats, Space
from sigmazero.core.space_keep import Around, RuleKeeper
from sigmazero.core.space_sites import SiteLayout

if TYPE_CHECKING:
    from sigmazero.core.problem import Problem

FINE = 100  # steps of a feature: with more of them its values are drawn as real ones are, at the ends


@dataclass(frozen=True, eq=False)
class Form:
    """A space that is more than a box. Tensors are over flat features; `costs` is over sites, None if all cost 1.

    `discrete` marks features whose legal values are not all of the box, `few` those of them that have at most FINE + 1;
    `stepped` those with values k · times / per;
    `at` names those with a finite set, one row of `tables` each, padded with infinity. `shape` is that of one of the
    user's inputs, `cheapest` the least that a change costs. `keeper` has what ties features to each other, if anything.
    """

    space: Space
    columns: Columns
    shape: tuple[int, ...]
    layout: SiteLayout | None
    discrete: Tensor
    few: Tensor
    stepped: Tensor | None
    times: Tensor
    per: Tensor
    at: Tensor
    tables: Tensor
    costs: Tensor | None
    cheapest: float
    keeper: RuleKeeper | None = None

    @classmethod
    def make(cls, space: Space, columns: Columns, shape: tuple[int, ...], pixels: int, x: Tensor) -> Form | None:
        """None where the space is a box. `pixels` is how many channels count once, 1 if each counts."""
        device = x.device
        stepped = torch.as_tensor(columns.per > 0, device=device)
        layout = SiteLayout.make(columns, device)
        costs = columns.cost.reshape(pixels, -1)
        if (costs != costs[:1]).any():
            raise ValueError("space: the channels of a pixel cost differently; with unit='pixel' a pixel has one cost")
        cost = torch.as_tensor(costs[0], device=device)
        by_site = cost if layout is None else layout.sites(cost).amax(0)
        plain = bool((by_site == 1).all())
        keeper = RuleKeeper.make(columns, shape, device)
        if not (bool(stepped.any()) or columns.tables or layout is not None or not plain or space.accept or keeper):
            return None
        most = max((len(table) for table in columns.tables.values()), default=0)
        tables = np.full((len(columns.tables), most), np.inf)
        for row, table in enumerate(columns.tables.values()):
            tables[row, : len(table)] = table
        at = torch.tensor(list(columns.tables), dtype=torch.int64, device=device)
        narrow = columns.upper - columns.lower <= FINE * columns.times / np.maximum(columns.per, 1)
        few = torch.as_tensor((columns.per > 0) & narrow, device=device)
        return cls(
            space=space,
            columns=columns,
            shape=shape,
            layout=layout,
            discrete=stepped.index_fill(0, at, True),
            few=few.index_fill(0, at, True),
            stepped=stepped if bool(stepped.any()) else None,
            times=torch.as_tensor(columns.times, device=device),
            per=torch.as_tensor(np.maximum(columns.per, 1), device=device),
            at=at,
            tables=torch.as_tensor(tables, device=device),
            costs=None if plain else by_site.to(x.dtype),
            cheapest=float(by_site.min()),
            keeper=keeper,
        )

    @property
    def derives(self) -> bool:
        """Whether some features follow from others."""
        return self.keeper is not None and bool(self.keeper.laws.at)

    @property
    def accept(self) -> Accept | None:
        """The user's own judge."""
        return self.space.accept

    def nearest(self, values: Tensor) -> Tensor:
        """The nearest legal values to (..., features), in float64 and whatever the ends and groups."""
        found = values.double()
        if self.stepped is not None:
            found = torch.where(self.stepped, torch.round(found * self.per / self.times) * self.times / self.per, found)
        if len(self.at):
            some = found[..., self.at]
            nearest = (some[..., None] - self.tables).abs().argmin(-1)
            picked = self.tables.expand(*some.shape, -1).gather(-1, nearest[..., None]).squeeze(-1)
            found = found.index_copy(-1, self.at, picked)
        return found

    def choices(self, feature: int, most: int) -> Floats | None:
        """Every legal value of a flat feature, in the user's units; None if there are more than `most`, or endless."""
        columns = self.columns
        if feature in columns.tables:
            return columns.tables[feature]
        if columns.per[feature] == 0:
            return None
        steps = columns.per[feature] / columns.times[feature]
        first, last = columns.lower[feature] * steps, columns.upper[feature] * steps
        if not last - first < most:
            return None
        every: Floats = np.arange(np.ceil(first - SLACK), np.floor(last + SLACK) + 1)
        return np.asarray(every * columns.times[feature] / columns.per[feature])

    def beyond(self, values: Tensor, rising: Tensor) -> Tensor:
        """The next legal values (..., features), in float64, as one goes up, or down where nothing rises."""
        found = values
        if self.stepped is not None:
            steps = found * self.per / self.times
            whole = torch.where(rising, torch.ceil(steps - SLACK), torch.floor(steps + SLACK))
            found = torch.where(self.stepped, whole * self.times / self.per, found)
        if len(self.at):
            some, up = found[..., self.at, None], rising[..., self.at]
            slack = SLACK * some.abs()
            above = self.tables.masked_fill(self.tables < some - slack, torch.inf).amin(-1)
            below = self.tables.masked_fill((self.tables > some + slack) | self.tables.isinf(), -torch.inf).amax(-1)
            found = found.index_copy(-1, self.at, torch.where(up, above, below))
        return found

    def snap(self, values: Tensor, x: Tensor, lower: Tensor, upper: Tensor, keys: Tensor | None = None) -> Tensor:
        """The legal values next to (..., features) of the user's; what falls to the clean value has its bits."""
        values = torch.clamp(values, lower, upper)
        legal = self.nearest(values)
        same = legal == self.nearest(x)
        discrete = self.discrete
        found = torch.clamp(legal.to(x.dtype), lower, upper)
        found = torch.where(discrete & same, x, torch.where(discrete, found, values))
        found = found if self.layout is None else self._one_category(found, values, x)
        return found if self.keeper is None else self.keeper.keep(found, Around(x, lower, upper), self, keys)

    def own_bits(self, values: Tensor, x: Tensor) -> Tensor:
        """Legal values (..., features) in the format of the inputs; those of the clean input have its bits."""
        same = self.discrete & (self.nearest(values) == self.nearest(x))
        return torch.where(same, x, values.to(x.dtype))

    def touched(self, different: Tensor) -> Tensor:
        """Which features (..., features) are of a site with a change."""
        if self.layout is None:
            return different
        sites = self.layout.sites(different).any(-2, keepdim=True)
        return self.layout.flat(sites.expand(*sites.shape[:-2], *self.layout.index.shape).flatten(-2))

    def chosen(self, different: Tensor) -> Tensor:
        """The same without derived features, which nobody chose to change: (rows, ...) of the user's."""
        return different if self.keeper is None else different & ~self.keeper.derived.view(self.shape)

    def _one_category(self, found: Tensor, values: Tensor, x: Tensor) -> Tensor:
        """In every one-hot group the largest of the values wins, the clean category where it is among them."""
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
        """Tensors (rows, features) in the shape of the inner problem's inputs."""
        if self.layout is None:
            return flat.view(len(flat), *self.shape)
        return self.layout.sites(flat)[..., None, None]

    def outside(self, inner: Tensor, rank: int) -> Tensor:
        """Points of the inner problem, whose inputs have so many dimensions, as (rows, features) or (rows, K, ...)."""
        flat = inner.flatten(inner.ndim - rank + 1)
        return flat if self.layout is None else self.layout.flat(flat)

    def check(self, x: Tensor, lower: Tensor, upper: Tensor) -> None:
        """Refuse inputs that break a rule themselves."""
        if self.keeper is not None and len(x):
            self.keeper.check(x.flatten(1), self._around(x, lower, upper), self)

    def _around(self, *tensors: Tensor) -> Around:
        return Around(*(t.expand(len(t), *self.shape).flatten(1) for t in tensors))

    def lawful(self, points: Tensor, x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """Which of the user's points keep every rule but the ends, which are the problem's: judged in float64.

        The ends of derived features are judged here.
        """
        flat, clean = points.flatten(1).double(), x.flatten(1).double()
        tolerance = 4 * torch.finfo(points.dtype).eps * flat.abs().clamp(min=1)
        whole = self.discrete & (self.per == 1) & (self.times == self.times.round())
        tolerance = torch.where(whole, tolerance.clamp(max=WHOLE), tolerance)
        legal = (flat == clean) | ((flat - self.nearest(flat)).abs() <= tolerance)
        good = (legal if self.keeper is None else legal | self.keeper.derived).all(1)
        for group in self.columns.groups:
            if group.one_hot:
                some = flat[:, list(group.members)]
                good = good & ((some == 0) | (some == 1)).all(1) & (some.sum(1) == 1)
        if self.keeper is not None:
            broken = self.keeper.broken(points.flatten(1), self._around(x, lower, upper), self)
            good = good & ~broken.any(1)
        return good

    def accepted(self, points: Tensor, x: Tensor) -> Tensor:
        """What the user's own judge says of points."""
        assert self.accept is not None
        answer = torch.as_tensor(self.accept(points, x), device=points.device)
        if answer.shape != (len(points),) or answer.dtype != torch.bool:
            what = f"shape {tuple(answer.shape)} and dtype {answer.dtype}"
            raise ValueError(f"space: accept returned {what} for {len(points)} points; return one boolean per point")
        return answer


def enter(problem: Problem) -> Problem:
    """The inner problem of one with a form: every feature from 0 to 1, groups laid out as sites."""
    form = problem.form
    assert form is not None
    shape = problem.x.shape
    lower, upper = (t.expand(len(t), *shape[1:]).flatten(1) for t in (problem.lower, problem.upper))
    offset, width = scale(lower, upper)
    bounded = (upper - lower).isfinite()
    ends = lower, upper
    if form.keeper is not None and form.derives:  # what follows from others stays as it is, for an attack
        flat_x = problem.x.flatten(1)
        lower, upper = (torch.where(form.keeper.derived, flat_x, t) for t in ends)
    fixed = lower == upper

    def unit(values: Tensor) -> Tensor:
        return (values - offset) / width

    x = torch.clamp(unit(problem.x.flatten(1)), unit(lower), unit(upper))
    start = None
    if problem.start is not None:
        flat = problem.start.flatten(1)
        start = form.inside(torch.where(flat == problem.x.flatten(1), x, unit(flat)))
    free = None if problem.free is None else problem.free.expand(len(problem.free), *shape[1:]).flatten(1)
    if form.keeper is not None and form.derives:
        free = lower < upper
        if start is not None:
            start = torch.where(form.inside(form.keeper.derived[None]), form.inside(x), start)
    return replace(
        problem,
        x=form.inside(x),
        lower=form.inside(torch.where(fixed, unit(lower), torch.where(bounded, 0.0, lower))),
        upper=form.inside(torch.where(fixed, unit(lower), torch.where(bounded, 1.0, upper))),
        free=None if free is None else form.inside(free),
        start=start,
        unit=problem.unit if form.layout is None else "pixel",
        outer_x=problem.x,
        outer_lower=ends[0].view(-1, *shape[1:]),
        outer_upper=ends[1].view(-1, *shape[1:]),
    )


def legal(problem: Problem, point: Tensor, keys: Tensor | None = None) -> Tensor:
    """The legal point next to one of the inner problem, in its own units; several per sample may be given.

    `keys`, of the shape of `point`, name features that may join in where a rule is broken (see `RuleKeeper.keep`).
    """
    form, rank = problem.form, problem.x.ndim
    assert form is not None
    several = point.ndim > rank
    clipped = torch.clamp(point, *(_beside(t, several) for t in (problem.lower, problem.upper)))
    outer = outward(problem, clipped, snap=True, keys=keys).flatten(-len(form.shape))
    x, offset, width = (_beside(t, several) for t in _flat(problem))
    inner = (outer - offset) / width
    same = outer == x
    own = _beside(form.outside(problem.x, rank), several)
    # A real value stays as it was: there and back it could become another one by rounding.
    moved = form.discrete
    if form.keeper is not None:
        moved = moved | (outer != outward(problem, clipped, snap=False).flatten(-len(form.shape)))
        same = same | form.keeper.derived
    found = torch.where(same, own, torch.where(moved, inner, form.outside(clipped, rank)))
    if not several:
        return form.inside(found)
    return form.inside(found.flatten(0, 1)).view(*point.shape)


def some(problem: Problem, draws: Tensor) -> Tensor:
    """A legal point drawn by numbers in [0, 1), one per feature: any value where there are few, else an end."""
    form = problem.form
    assert form is not None
    end = torch.where(draws < 0.5, problem.lower, problem.upper)
    between = problem.lower + draws * (problem.upper - problem.lower)
    return legal(problem, torch.where(form.inside(form.few[None]), between, end))


def outward(problem: Problem, point: Tensor, snap: bool = True, keys: Tensor | None = None) -> Tensor:
    """Points of the inner problem in the user's units and shape, the nearest legal ones unless told otherwise."""
    form, rank = problem.form, problem.x.ndim
    assert form is not None
    assert problem.outer_lower is not None
    assert problem.outer_upper is not None
    several = point.ndim > rank
    flat = form.outside(point, rank)
    x, offset, width = (_beside(t, several) for t in _flat(problem))
    clean, top = (_beside(form.outside(t, rank), several) for t in (problem.x, problem.upper))
    lower, end = (_beside(t.flatten(1), several) for t in (problem.outer_lower, problem.outer_upper))
    outer = offset + flat * width
    outer = torch.where(flat < top, outer.minimum(end), torch.where(flat == top, end, outer))
    outer = torch.where(flat == clean, x, outer)
    outer = form.snap(outer, x, lower, end, None if keys is None else form.outside(keys, rank)) if snap else outer
    return outer.reshape(*point.shape[: point.ndim - rank + 1], *form.shape)


def inward(problem: Problem, point: Tensor) -> Tensor:
    """Points of the user's in the units and the shape of the inner problem; they may be illegal."""
    form = problem.form
    assert form is not None
    x, offset, width = _flat(problem)
    flat = point.flatten(1)
    same = flat == x if form.keeper is None else (flat == x) | form.keeper.derived
    return form.inside(torch.where(same, form.outside(problem.x, problem.x.ndim), (flat - offset) / width))


def inward_slope(problem: Problem, gradient: Tensor) -> Tensor:
    """A gradient with respect to the user's values, with respect to the inner problem's: straight through a snap."""
    form = problem.form
    assert form is not None
    flat = gradient.flatten(1)
    if form.derives:  # a user's function may have no slope somewhere
        flat = torch.nan_to_num(flat, 0.0, 0.0, 0.0)
    return form.inside(flat * _flat(problem)[2])


def _flat(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """The user's inputs, where the box begins and how wide it is, as (rows, features)."""
    assert problem.outer_x is not None
    assert problem.outer_lower is not None
    assert problem.outer_upper is not None
    offset, width = scale(problem.outer_lower.flatten(1), problem.outer_upper.flatten(1))
    return problem.outer_x.flatten(1), offset, width


def _beside(own: Tensor, several: bool) -> Tensor:
    return own.unsqueeze(1) if several else own
