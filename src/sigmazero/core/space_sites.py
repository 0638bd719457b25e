"""Where the features of a space stand when those that count once are laid out as channels of one site."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sigmazero.core.space import Columns


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
        """None where every feature is a site of its own."""
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
        """Values (..., features) as (..., features of a site, sites), 0 (or False) where there is no feature."""
        return flat[..., self.index].masked_fill(self.pad, 0)

    def flat(self, by_site: Tensor) -> Tensor:
        """Values (..., features of a site × sites) as (..., features)."""
        return by_site[..., self.back]
