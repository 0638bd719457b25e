"""The domain of a search: which changes are legal, and how they are counted.

Attacks, oracle, session and verifier ask a `Domain` and never which kind it is. `Domain` itself is a box: bounds and a
mask. The domain of a declared space inherits from it (sigmazero.spaces).

A search walks in *search coordinates*: every feature with two ends runs from 0 to 1, and features that count once
together are laid out as channels of one site. The model is asked in the *user's* units.

    N    samples        S    sites: what counts as one change        C    features of a site
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor

from sigmazero.core import ops

Unit = Literal["feature", "pixel"]
Draw = Callable[[], Tensor]  # makes random numbers in [0, 1) when they are needed
Accept = Callable[[Tensor, Tensor], Tensor]
ENDS = ("lower", "upper", "free", "user_lower", "user_upper")  # one row for all samples, unless `per_sample`
COST_ROUNDING = 1e-6  # part by which a sum of costs may be off: three times 0.1 is not above 0.3
WHOLE = 4  # features of a site whose ends are tried in every combination; of a larger one all lower, then all upper


class Moves(NamedTuple):
    """Single changes: their sites (M,), and their values (N, C, M).

    Where a rule ties a site to others, a change comes once more for each feature that may join it first: `partner` (M,)
    numbers these from 1, and is 0 where none joins.
    """

    site: Tensor
    value: Tensor
    partner: Tensor


class Counts(NamedTuple):
    """Changes between clean inputs and user points, each (N,); `cost` is in the user's unit.

    `l0` counts features; in a space with groups, and with unit "feature", it counts each group once. `sites` is l0 in
    the unit of the question.
    """

    sites: Tensor
    l0: Tensor
    l0_pixel: Tensor
    cost: Tensor


@dataclass(frozen=True, eq=False)
class Domain:
    """The changes that are legal around a batch of inputs; in a box every change costs the same.

    user_x, user_lower, user_upper  clean inputs and ends in the user's units
    x, lower, upper   the same in search coordinates; a feature that may not change has its clean value as both ends
    free        which features may change; None where all may
    unit        what the user counts: features, or positions with all their channels
    joined      whether the channels (dimension 1) of a search position are one site
    per_sample  whether the ends have a row per sample instead of one for all
    price       what every change in a box costs in the user's unit
    """

    user_x: Tensor
    user_lower: Tensor
    user_upper: Tensor
    x: Tensor
    lower: Tensor
    upper: Tensor
    free: Tensor | None
    unit: Unit
    joined: bool
    per_sample: bool
    price: float = 1.0

    needs_exploring: ClassVar[bool] = False  # a walk to the ends would miss legal values between them

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.x)

    # Reasons for an attack to act differently; attacks do not ask for the kind of domain

    @property
    def snaps(self) -> bool:
        """Return whether a point inside the ends may be illegal: then the oracle asks about the nearest legal one."""
        return self.needs_exploring

    @property
    def weighted(self) -> bool:
        """Return whether some changes cost more than others: then a search looks for cheap points, not sparse ones."""
        return False

    @property
    def tied(self) -> bool:
        """Return whether rules tie features to each other."""
        return False

    @property
    def shrinks(self) -> bool:
        """Return whether found values should move back towards the clean ones (see run.smallest)."""
        return False

    @property
    def finest(self) -> Tensor:
        """Return by which part of their way the numbers of each site (S,) go back; infinite where it has none."""
        return self.x.new_full((self.sites,), torch.inf)

    @property
    def several(self) -> Tensor | None:
        """Return which sites (1, S) have more than two values without an order; None where no site has."""
        return None

    @property
    def categories(self) -> Tensor | None:
        """Return which sites (S,) are one-hot groups; None if there are none."""
        return None

    # Sites and what they cost

    @property
    def features(self) -> int:
        """Return the number of scalars of a point in search coordinates."""
        return self.x.shape[1:].numel()

    @property
    def sites(self) -> int:
        """Return the number of sites."""
        return self.features // (self.x.shape[1] if self.joined else 1)

    @property
    def costs(self) -> Tensor:
        """Return the cost of a change of each site in the search, (S,), scaled to mean 1."""
        return self.x.new_ones(self.sites)

    @property
    def weights(self) -> Tensor | float:
        """Return the costs, shaped to multiply x; exactly 1.0 where they are all alike."""
        return 1.0

    def least(self, changes: Tensor | int) -> Tensor | int:
        """Return the lowest cost of this number of changes in the search; sums of costs may be off by rounding."""
        return self.costs.amin() * changes * (1 + COST_ROUNDING) if self.weighted else changes

    @property
    def nothing(self) -> Tensor | int:
        """Return more than the cost of all sites: the cost of a sample without any example."""
        return self.costs.sum() + 1 if self.weighted else self.sites + 1

    def by_site(self, values: Tensor) -> Tensor:
        """Reshape values of every feature to (N, C, S)."""
        return values.expand_as(self.x).reshape(len(self.x), -1, self.sites)

    @property
    def box(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the clean values and both ends by sites, each (N, C, S)."""
        return self.by_site(self.x), self.by_site(self.lower), self.by_site(self.upper)

    def site_sum(self, values: Tensor) -> Tensor:
        """Sum over the features of each site, broadcastable over x."""
        return values.sum(1, keepdim=True) if self.joined else values

    def site_max(self, values: Tensor) -> Tensor:
        """Return the largest value of each site, broadcastable over x."""
        return values.amax(1, keepdim=True) if self.joined else values

    def site_norm(self, values: Tensor) -> Tensor:
        """Return the l2 norm over the features of each site, broadcastable over x."""
        return values.square().sum(1, keepdim=True).sqrt() if self.joined else values.abs()

    def first_channel(self, values: Tensor) -> Tensor:
        """Return one number per site, broadcastable over x."""
        return values[:, :1] if self.joined else values

    # Points in search coordinates: one per sample (N, ...), or where it says so several, (N, K, ...)

    @property
    def bounded(self) -> bool:
        """Return whether every feature that may change has finite ends."""
        return bool((self.upper - self.lower).isfinite().all())

    def clip(self, a: Tensor) -> Tensor:
        """Return the nearest point inside the box; what may not change gets its clean value back."""
        return torch.clamp(a, self.lower, self.upper)

    def inside(self, a: Tensor) -> Tensor:
        """Return whether a point is inside the box and changes only what may change (NaN is not), (N,)."""
        return (self.clip(a) == a).flatten(1).all(1)

    def changed(self, a: Tensor) -> Tensor:
        """Return which sites differ from the clean input, broadcastable over x."""
        different = a != self.x
        return different.any(1, keepdim=True) if self.joined else different

    def l0(self, a: Tensor) -> Tensor:
        """Return the number of changed sites, (N,)."""
        return self.changed(a).flatten(1).sum(1)

    def cost(self, a: Tensor) -> Tensor:
        """Return what the changes of a point cost together in the search, (N,)."""
        changed = self.changed(a).flatten(1).to(self.x.dtype)
        return (changed * self.costs).sum(1) if self.weighted else changed.sum(1)

    def snap(self, a: Tensor) -> Tensor:
        """Return the nearest legal point, which is what the oracle asks about; (N, K, ...) too.

        In a box that is the point itself: an attack may look outside, and the oracle does not count it as a success.
        """
        return a

    def complete(self, a: Tensor, order: Draw) -> Tensor:
        """Snap, but let unchanged features join in this order where that keeps a rule; (N, K, ...) too."""
        del order
        return a

    def allowed(self, a: Tensor) -> Tensor:
        """Return the allowed point nearest to one from elsewhere; without a mask a point outside a box stays there."""
        return a if self.free is None else self.clip(a)

    # Choices

    def far(self) -> Tensor:
        """Return the end further from the clean value, (N, C, S)."""
        x, lower, upper = self.box
        return torch.where(upper - x >= x - lower, upper, lower)

    def best_values(self, g: Tensor) -> Tensor:
        """Return the values (N, C, S) at which a linear loss with slopes g (N, C, S) is lowest, site by site."""
        return torch.where(g <= 0, self.by_site(self.upper), self.by_site(self.lower))

    def draw(self, u: Tensor) -> Tensor:
        """Return a random legal point for numbers in [0, 1) like x: any value where there are few, else an end."""
        return torch.where(u < 0.5, self.lower, self.upper)

    def sample(self, u: Draw, ends: Tensor) -> Tensor:
        """Return `ends` (N, C, S), with a random legal value wherever a feature has few of them."""
        del u
        return ends

    def choose(self, score: Tensor, n: Tensor) -> Tensor:
        """Return the n best-scoring sites, (N, S), none without a score and of equal ones all.

        Where some cost more than others, return as many as cost less than n together.
        """
        if self.weighted:
            order = score.argsort(1, descending=True)
            below = self.costs[order].cumsum(1) < n[:, None]
            return torch.zeros_like(below).scatter(1, order, below) & (score > 0)
        k = n.long().clamp(min=1, max=self.sites)
        return score >= ops.kth_largest(score, k).clamp(min=1e-30)[:, None]

    @property
    def _ways(self) -> list[tuple[int, ...]]:
        """Return the combinations of ends that one site may take."""
        n = self.features // self.sites
        return list(product((0, 1), repeat=n)) if n <= WHOLE else [(0,) * n, (1,) * n]

    @property
    def single_changes(self) -> int:
        """Return how many single changes `moves` lists."""
        return self.sites * len(self._ways)

    def moves(self) -> Moves:
        """Return every single change, whether it is possible for a sample or not."""
        device, ways = self.x.device, self._ways
        site = torch.arange(self.sites, device=device).repeat_interleave(len(ways))
        high = torch.tensor(ways, dtype=torch.bool, device=device).T.repeat(1, self.sites)
        lower, upper = (self.by_site(end)[..., site] for end in (self.lower, self.upper))
        return Moves(site, torch.where(high, upper, lower), torch.zeros_like(site))

    def partners(self, partner: Tensor) -> Tensor:
        """Return for each partner (...) of a move the order in which features join, (..., *x.shape[1:]); inf: never."""
        return self.x.new_full((*partner.shape, *self.x.shape[1:]), torch.inf)

    # The user's side

    @property
    def user_costs(self) -> Tensor:
        """Return what a change of each site costs in the user's unit, (S,)."""
        return self.x.new_full((self.sites,), self.price)

    @property
    def priced(self) -> bool:
        """Return whether a change costs other than 1 in the user's unit, so that reports have a cost of their own."""
        return bool((self.user_costs != 1).any())

    @property
    def accept(self) -> Accept | None:
        """Return the user's function that accepts (points, clean inputs); None if there is none."""
        return None

    @property
    def _scaled(self) -> bool:
        return self.user_x is not self.x

    def to_user(self, a: Tensor) -> Tensor:
        """Return search points (N, ...) or (N, K, ...) in the user's units and with the user's bits.

        Unchanged values keep their bits, and rounding moves no point out of the box.
        """
        if not self._scaled:
            return a
        several = a.ndim > self.x.ndim
        scaling = scale(self.user_lower, self.user_upper)
        tensors = (self.x, self.user_x, self.upper, self.user_upper, *scaling)
        clean, x, upper, end, offset, width = (t.unsqueeze(1) if several else t for t in tensors)
        user = offset + a * width
        user = torch.where(a < upper, user.minimum(end), torch.where(a == upper, end, user))
        return torch.where(a == clean, x, user)

    def from_user(self, points: Tensor) -> Tensor:
        """Return user points in search coordinates; they may be illegal."""
        if not self._scaled:
            return points
        offset, width = scale(self.user_lower, self.user_upper)
        return torch.where(points == self.user_x, self.x, (points - offset) / width)

    def traced(self, points: Tensor) -> Tensor:
        """Return the same user points, connected so that gradients reach what derived features follow from."""
        return points

    def pull(self, grad: Tensor) -> Tensor:
        """Turn a gradient in user units into one in search coordinates, 0 where nothing may change."""
        grad = grad * scale(self.user_lower, self.user_upper)[1] if self._scaled else grad
        return grad if self.free is None else grad * self.free

    def within(self, points: Tensor) -> Tensor:
        """Return which user points keep bounds and mask, (N,)."""
        return (torch.clamp(points, self.user_lower, self.user_upper) == points).flatten(1).all(1)

    def legal(self, points: Tensor) -> Tensor:
        """Return which user points are legal, apart from `accept`, (N,)."""
        return self.within(points)

    def count(self, points: Tensor) -> Counts:
        """Count the changes of user points."""
        l0, pixels = count_features(points, self.user_x), count_pixels(points, self.user_x)
        sites = pixels if self.joined else l0
        return Counts(sites, l0, pixels, sites if self.price == 1 else sites.to(points) * self.price)

    # Batches

    def take(self, rows: Tensor) -> Self:
        """Return the domain of some of the samples."""
        ends = {name: v[rows] for name in ENDS if self.per_sample and (v := getattr(self, name)) is not None}
        x = self.x[rows]
        return replace(self, x=x, user_x=x if self.user_x is self.x else self.user_x[rows], **ends)

    def key(self) -> Hashable:
        """Return what a captured step depends on besides the rows: problems with equal keys may share captures."""
        tensors = {name: getattr(self, name) for name in ("x", "user_x", *ENDS)}
        shapes = tuple((name, t.shape[1:]) for name, t in tensors.items() if t is not None)
        return type(self), self.unit, self.joined, self.per_sample, self.user_x is self.x, shapes


def make_box(
    x: Tensor, lower: Tensor, upper: Tensor, free: Tensor | None, unit: Unit, per_sample: bool, price: float = 1.0
) -> Domain:
    """Make the box of user inputs; one that is [0, 1] already is taken as it is."""
    joined = unit == "pixel" and x.ndim > 2 and x.shape[1] > 1
    offset, width = scale(lower, upper)
    if bool(((offset == 0) & (width == 1) | (lower == upper)).all()):
        return Domain(x, lower, upper, x, lower, upper, free, unit, joined, per_sample, price)
    least, most, fixed = (lower - offset) / width, (upper - offset) / width, lower == upper
    bounded = (upper - lower).isfinite()
    low, high = (torch.where(bounded, end, own) for end, own in ((0.0, lower), (1.0, upper)))
    low, high = (torch.where(fixed, least, end) for end in (low, high))
    inner = torch.clamp((x - offset) / width, least, most)
    return Domain(x, lower, upper, inner, low, high, free, unit, joined, per_sample, price)


def enclosed(
    x: Tensor, lower: Tensor, upper: Tensor, free: Tensor | None, per_sample: bool = False
) -> tuple[Tensor, Tensor, Tensor | None, bool]:
    """Combine bounds and mask; the last value says whether the ends have a row per sample."""
    per_sample = per_sample or max(len(lower), len(upper)) > 1 or free is not None
    if free is not None:
        lower, upper, free = torch.where(free, lower, x), torch.where(free, upper, x), free.expand_as(x)
    return (lower.expand_as(x), upper.expand_as(x), free, True) if per_sample else (lower, upper, free, False)


def scale(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Return offset and width of a box; 0 and 1 for features without an end, whose values stay as they are."""
    width = upper - lower
    bounded = width.isfinite()
    return torch.where(bounded, lower, 0.0), torch.where(bounded & (width > 0), width, 1.0)


def count_features(points: Tensor, x: Tensor) -> Tensor:
    """Count the scalars that differ, per sample."""
    return (points != x).flatten(1).sum(1)


def count_pixels(points: Tensor, x: Tensor) -> Tensor:
    """Count the positions that differ, channels (dimension 1) joined; plain features for (N, D) inputs."""
    different = points != x
    return (different.any(1) if x.ndim > 2 else different).flatten(1).sum(1)
