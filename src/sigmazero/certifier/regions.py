"""What may change, for many tasks at once, and the least that a linear form can be over it.

A *site* is a feature, or with `unit="pixel"` a position with all its channels. A region knows how far each feature may
move (`lo` and `hi`, around 0). The least value of a form over a region is minus the sum of the *gains* of the sites
that do most: a site's gain is how far it alone can bring the form down.
"""

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

import torch
from torch import Tensor

from sigmazero.certifier.forms import Forms, ringed
from sigmazero.certifier.fused import kernels
from sigmazero.certifier.layers import Reach
from sigmazero.certifier.rounding import gamma

FEW = 12  # free features of a task that planes are made over, at most; their cost grows with them


def gains(a: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
    """How far each feature can bring a form down."""
    down = -a
    return torch.maximum(down * lo, down * hi)


@dataclass(frozen=True, eq=False)
class Groups:
    """At most one site of each of several groups, which are equal or have no site in common.

    `sites` is (tasks, groups, places), -1 where a group has fewer; sites count in the order height, width, channels.
    `lo` and `hi` are (rows, height, width, channels), `rows` says which of them is a task's.
    """

    sites: Tensor
    lo: Tensor
    hi: Tensor
    rows: Tensor
    pixels: bool = False

    def __len__(self) -> int:
        """Number of tasks."""
        return len(self.sites)

    @property
    def few(self) -> bool:
        """Whether so few features may change that planes over them are worth it."""
        _, groups, places = self.sites.shape
        return groups * places * (self.lo.shape[3] if self.pixels else 1) <= FEW

    @cached_property
    def _whole(self) -> Tensor:
        """The group of every site (tasks, height, width, channels or 1), -1 for sites of none."""
        n, groups = self.sites.shape[:2]
        h, w, c = self.lo.shape[1:]
        c = 1 if self.pixels else c
        label = torch.full((n, h * w * c + 1), -1, dtype=torch.int16, device=self.sites.device)
        for group in reversed(range(groups)):  # a group that comes twice goes by the first
            label.scatter_(1, torch.where(self.sites[:, group] < 0, h * w * c, self.sites[:, group]), group)
        return label[:, :-1].view(n, h, w, c)

    @cached_property
    def _first(self) -> Tensor:
        """For each group the first one that is the same (tasks, groups)."""
        same = (self.sites[:, :, None] == self.sites[:, None]).all(3)
        return same.to(torch.int8).argmax(2)

    @cached_property
    def _rank(self) -> Tensor:
        """How many groups before each group are the same (tasks, groups)."""
        return (self._first[:, :, None] == self._first[:, None]).tril(-1).sum(2)

    @cached_property
    def _most(self) -> int:
        """How often a group comes in a task at most."""
        return int(self._rank.max()) + 1 if self._rank.numel() else 1

    @cached_property
    def twins(self) -> bool:
        """Whether any group comes twice in a task."""
        return self._most > 1

    @cached_property
    def interval(self) -> Reach:
        """How far each feature may move at all (tasks, height, width, channels)."""
        free = self._whole >= 0
        return tuple(torch.where(free, t[self.rows], 0.0) for t in (self.lo, self.hi))  # type: ignore[return-value]

    @cached_property
    def listed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Sites with those left out as 0, and the ends of their features (tasks, sites, features)."""
        n = len(self)
        sites = self.sites.clamp_min(0).view(n, -1)
        channels = self.lo.shape[3] if self.pixels else 1
        lo, hi = (t.view(len(t), -1, channels)[self.rows[:, None], sites] for t in (self.lo, self.hi))
        real = (self.sites.view(n, -1, 1) >= 0).to(lo.dtype)
        return sites, lo * real, hi * real

    @cached_property
    def _ringed(self) -> Tensor:
        """Ends and groups side by side, with a ring around the image."""
        return ringed(torch.cat((*self.interval, (self._whole + 1).to(self.lo.dtype)), 3))

    def least(self, forms: Forms) -> Tensor:
        """The least value of each form over its task's region."""
        a, tasks = forms.a, forms.tasks
        groups, places = self.sites.shape[1:]
        on = kernels(a)
        if on and on.groups(groups, self.lo.shape[3]):
            return -_total(self._by_kernel(on, forms)[:, None], self)
        if forms.origin is None:
            sites, lo, hi = self.listed
            chosen = sites[tasks]
            channels = lo.shape[2]
            flat = a.reshape(len(a), -1, channels)
            picked = flat.gather(1, chosen[:, :, None].expand(-1, -1, channels))
            gain = gains(picked, lo[tasks], hi[tasks]).sum(2).view(len(a), groups, places)
            return -_total(self._best(gain, tasks), self)
        channels = self.lo.shape[3]
        lo, hi, label = forms.take(self._ringed, ring=True).tensor_split((channels, 2 * channels), 3)
        gain = gains(a, lo, hi)
        gain = (gain.sum(3) if self.pixels else gain).flatten(1)
        label = label.flatten(1) - 1
        best = []
        for group in range(groups):
            mine = torch.where(label == self._first[tasks, group, None], gain, 0.0)
            value, place = mine.max(1)
            best.append(value)
            if self.twins:
                # Its next twin takes another site; where nothing was gained the place is any, perhaps another group's.
                kept = torch.where(value > 0, 0.0, gain.gather(1, place[:, None])[:, 0])
                gain = gain.scatter(1, place[:, None], kept[:, None])
        return -_total(torch.stack(best, 1), self)

    def _by_kernel(self, on: ModuleType, forms: Forms) -> Tensor:
        """The sum of the largest gains of each form."""
        found: Tensor
        if forms.origin is None:
            sites, *ends = self.listed
            found = on.best_listed(forms.a, forms.tasks, sites, ends, self._rank, self._most)
        else:
            known = self._ringed, (self._first, self._rank), self._most, self.lo.shape[3], self.pixels
            found = on.best_seen(forms.a, forms.tasks, forms.origin, *known)
        return found

    def _best(self, gain: Tensor, tasks: Tensor) -> Tensor:
        """The largest gain of each group (forms, groups, places); of a group that comes twice the two largest."""
        if not self.twins:
            return gain.amax(2)
        rank = self._rank[tasks]
        count = min(gain.shape[1], gain.shape[2])
        top = gain.topk(count, 2).values
        picked: Tensor = top.gather(2, rank.clamp_max(count - 1)[:, :, None])[:, :, 0]
        return torch.where(rank < count, picked, 0.0)


@dataclass(frozen=True, eq=False)
class TopSites:
    """All of some sites, and at most so many of some others.

    `free` and `other` are (tasks, sites) in the order height, width, channels; `most` is (tasks,): how many of the
    others may change besides the free ones. `lo`, `hi` and `rows` are as for `Groups`.
    """

    free: Tensor
    other: Tensor
    most: Tensor
    lo: Tensor
    hi: Tensor
    rows: Tensor
    pixels: bool = False

    def __len__(self) -> int:
        """Number of tasks."""
        return len(self.free)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the input."""
        h, w, c = self.lo.shape[1:]
        return h, w, c

    @cached_property
    def _ends(self) -> Reach:
        """How far each feature may move (tasks, sites, features)."""
        channels = self.lo.shape[3] if self.pixels else 1
        may = ((self.free | self.other)[:, :, None]).to(self.lo.dtype)
        lo, hi = (t.reshape(len(t), -1, channels)[self.rows] * may for t in (self.lo, self.hi))
        return lo, hi

    @cached_property
    def interval(self) -> Reach:
        """How far each feature may move at all (tasks, height, width, channels)."""
        shape = (len(self), *self.lo.shape[1:])
        return self._ends[0].reshape(shape), self._ends[1].reshape(shape)

    def least(self, forms: Forms) -> Tensor:
        """The least value of each form over its task's region."""
        forms = forms.whole(self.shape)
        lo, hi = self._ends
        a, tasks = forms.a, forms.tasks
        gain = gains(a.reshape(len(a), -1, lo.shape[2]), lo[tasks], hi[tasks]).sum(2)
        free, other = self.free[tasks], self.other[tasks]
        count = min(int(self.most.max()), gain.shape[1]) if len(self) else 0
        sure = torch.where(free, gain, 0.0).sum(1)
        top = torch.where(other & ~free, gain, 0.0).topk(count, 1).values
        allowed = torch.arange(count, device=a.device) < self.most[tasks, None]
        return -_total(torch.stack((sure, torch.where(allowed, top, 0.0).sum(1)), 1), self)


def _total(best: Tensor, region: "Groups | TopSites") -> Tensor:
    """A sum, with what rounding may have taken from it."""
    features = region.lo.shape[1] * region.lo.shape[2] * region.lo.shape[3]
    return best.sum(1) * (1 + 4 * gamma(features))


Region = Groups | TopSites
