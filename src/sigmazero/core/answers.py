"""The answers of a search so far, so that no point is asked about twice.

Points are known by a hash of their bits. This is for searches on the host, which may look at values.
"""

from copy import copy
from itertools import islice

import torch
from torch import Tensor

from sigmazero.core.noise import mix

STEPS_FACTOR = 3  # steps a search may take for each that its queries would fill: repeated points cost none
MAX_BYTES = 512 << 20  # of answers about one batch; older ones are forgotten first
Keys = list[list[tuple[int, int]]]  # of points (N, K): each a row of the batch and a hash


class Answers:
    """Numbers by point, for each row of a batch: logits, or logits and a gradient."""

    def __init__(self, rows: int) -> None:
        """Begin with none."""
        self._rows = list(range(rows))
        self._numbers: dict[tuple[int, int], Tensor] = {}  # in the order in which they were asked

    def find(self, x: Tensor) -> tuple[Tensor, Keys]:
        """Return which points (N, K, ...) are new, each the first of its kind, and the keys of all."""
        keys = [[(row, bits) for bits in mine] for row, mine in zip(self._rows, _hashes(x).tolist(), strict=True)]
        seen: set[tuple[int, int]] = set()
        new = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
        for row, mine in enumerate(keys):
            for k, key in enumerate(mine):
                if key not in self._numbers and key not in seen:
                    new[row, k] = True
                    seen.add(key)
        return new, keys

    def remember(self, new: Tensor, keys: Keys, numbers: Tensor) -> None:
        """Remember the numbers (M, ...) of the new points."""
        for (row, k), one in zip(new.nonzero().tolist(), numbers.unbind(0), strict=True):
            self._numbers[keys[row][k]] = one

    def recall(self, keys: Keys) -> Tensor:
        """Return the numbers of points that are known, (N, K, ...); then forget the oldest where there are too many."""
        found = torch.stack([self._numbers[key] for mine in keys for key in mine])
        excess = len(self._numbers) - max(1, MAX_BYTES // max(1, found[0].nbytes))
        for key in list(islice(self._numbers, max(0, excess))):
            del self._numbers[key]
        return found.view(len(keys), -1, *found.shape[1:])

    def take(self, rows: Tensor) -> "Answers":
        """Return the memory of some of the rows, which is shared with this one."""
        found = copy(self)
        found._rows = [self._rows[row] for row in torch.arange(len(self._rows))[rows.cpu()].tolist()]
        return found


def _hashes(x: Tensor) -> Tensor:
    """Return a number for each point (N, K, ...) that depends on every bit."""
    flat = x.flatten(2) + 0.0  # no minus zero
    bits = flat.view(torch.int32 if flat.dtype == torch.float32 else torch.int64).to(torch.int64)
    place = torch.arange(1, flat.shape[2] + 1, device=x.device)
    return mix(bits + mix(place)).sum(2)
