"""Regions of inputs, and the least value of a linear form over each; many regions at once.

A *site* is a feature, or with `unit="pixel"` a position with all its channels. A region says how far each feature may
move (`lo` and `hi`, around 0). The *gain* of a site is how far it alone can lower a form. The least value of a form is
minus the sum of the largest gains.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sigmazero.certifier.layers import Interval, gamma

if TYPE_CHECKING:
    from sigmazero.certifier.crown import LinearForms

MAX_FREE = 12  # free features of a task up to which affine bounds are tried


def gains(a: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
    """Return how far each feature can lower a form."""
    down = -a
    return torch.maximum(down * lo, down * hi)


@dataclass(frozen=True, eq=False)
class OneSitePerGroup:
    """At most one site of each of several groups, which are equal or have no site in common.

    sites   (tasks, groups, places), -1 where a group has fewer; numbered in the order height, width, channels
    lo, hi  how far each feature may move (rows, height, width, channels)
    rows    the row of each task
    """

    sites: Tensor
    lo: Tensor
    hi: Tensor
    rows: Tensor
    pixels: bool = False

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self.sites)

    @property
    def few(self) -> bool:
        """Return whether few enough features may change for affine bounds."""
        _, groups, places = self.sites.shape
        return groups * places * (self.lo.shape[3] if self.pixels else 1) <= MAX_FREE

    @cached_property
    def _group(self) -> Tensor:
        """Return the group of every site (tasks, height, width, channels or 1), -1 for sites in no group."""
        n, groups = self.sites.shape[:2]
        h, w, c = self.lo.shape[1:]
        c = 1 if self.pixels else c
        label = torch.full((n, h * w * c + 1), -1, dtype=torch.int16, device=self.sites.device)
        for group in reversed(range(groups)):  # a group that occurs twice has its first number
            label.scatter_(1, torch.where(self.sites[:, group] < 0, h * w * c, self.sites[:, group]), group)
        return label[:, :-1].view(n, h, w, c)

    @cached_property
    def _first(self) -> Tensor:
        """Return the first group that equals each group (tasks, groups)."""
        same = (self.sites[:, :, None] == self.sites[:, None]).all(3)
        return same.to(torch.int8).argmax(2)

    @cached_property
    def _rank(self) -> Tensor:
        """Return how many earlier groups equal each group (tasks, groups)."""
        return (self._first[:, :, None] == self._first[:, None]).tril(-1).sum(2)

    @cached_property
    def twins(self) -> bool:
        """Return whether any group occurs twice in a task."""
        return bool((self._rank > 0).any())

    @cached_property
    def interval(self) -> Interval:
        """Return how far each feature may move (tasks, height, width, channels)."""
        free = self._group >= 0
        return tuple(torch.where(free, t[self.rows], 0.0) for t in (self.lo, self.hi))  # type: ignore[return-value]

    @cached_property
    def listed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sites, 0 for missing ones, and the ends of their features (tasks, sites, features)."""
        n = len(self)
        sites = self.sites.clamp_min(0).view(n, -1)
        channels = self.lo.shape[3] if self.pixels else 1
        lo, hi = (t.view(len(t), -1, channels)[self.rows[:, None], sites] for t in (self.lo, self.hi))
        real = (self.sites.view(n, -1, 1) >= 0).to(lo.dtype)
        return sites, lo * real, hi * real

    @cached_property
    def _ringed(self) -> Tensor:
        """Return the ends of the features and the group of each site, from 1, with a ring of zeros around them."""
        parts = torch.cat((*self.interval, (self._group + 1).to(self.lo.dtype)), 3)
        return torch.nn.functional.pad(parts, (0, 0, 1, 1, 1, 1))

    def least(self, forms: "LinearForms") -> Tensor:
        """Return the least value of each form over its task's region."""
        best = self._listed_gains(forms) if forms.origin is None else self._window_gains(forms)
        features = self.lo.shape[1] * self.lo.shape[2] * self.lo.shape[3]
        return -best.sum(1) * (1 + 4 * gamma(features))

    def _listed_gains(self, forms: "LinearForms") -> Tensor:
        """Return the largest gain of each group for forms over the whole input."""
        groups, places = self.sites.shape[1:]
        sites, lo, hi = self.listed
        chosen = sites[forms.tasks]
        channels = lo.shape[2]
        flat = forms.a.reshape(len(forms), -1, channels)
        picked = flat.gather(1, chosen[:, :, None].expand(-1, -1, channels))
        gain = gains(picked, lo[forms.tasks], hi[forms.tasks]).sum(2).view(len(forms), groups, places)
        return self._best(gain, forms.tasks)

    def _best(self, gain: Tensor, tasks: Tensor) -> Tensor:
        """Return the largest gain of each group (forms, groups, places), the two largest of one that occurs twice."""
        if not self.twins:
            return gain.amax(2)
        rank = self._rank[tasks]
        count = min(gain.shape[1], gain.shape[2])
        top = gain.topk(count, 2).values
        picked: Tensor = top.gather(2, rank.clamp_max(count - 1)[:, :, None])[:, :, 0]
        return torch.where(rank < count, picked, 0.0)

    def _window_gains(self, forms: "LinearForms") -> Tensor:
        """Return the largest gain of each group for forms in windows."""
        channels, first = forms.a.shape[3], self._first[forms.tasks]
        low, high, group_of = forms.take(self._ringed).tensor_split((channels, 2 * channels), 3)
        gain = gains(forms.a, low, high)
        gain = (gain.sum(3) if self.pixels else gain).flatten(1)
        label = group_of.flatten(1) - 1
        best = []
        for group in range(first.shape[1]):
            mine = torch.where(label == first[:, group, None], gain, 0.0)
            value, place = mine.max(1)
            best.append(value)
            if self.twins:
                # Its next twin takes another site; where nothing was gained the place is any, perhaps another group's.
                rest = torch.where(value > 0, 0.0, gain.gather(1, place[:, None])[:, 0])
                gain = gain.scatter(1, place[:, None], rest[:, None])
        return torch.stack(best, 1)
