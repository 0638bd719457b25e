"""The answers of a search so far, so that no point is asked about twice.

Points are known by a hash of their bits. This is for searches on the host, which may look at values.
"""

from copy import copy
from itertools import count, islice

import torch
from torch import Tensor

from sigmazero.core.noise import mix

STEPS_FACTOR = 3  # steps a search may take for each that its queries would fill: repeated points cost none
MAX_BYTES = 512 << 20  # of answers about one batch; older ones are forgotten first


class Answers:
    """Numbers by point, for each row of a batch: logits, or logits and a gradient."""

    def __init__(self, rows: int) -> None:
        """Begin with none."""
        self._places: list[dict[int, int]] = [{} for _ in range(rows)]
        self._numbers: dict[int, Tensor] = {}  # of every point, in the order in which they were asked
        self._turn = count()

    def find(self, x: Tensor) -> tuple[Tensor, list[list[int]]]:
        """Return which points (N, K, ...) are new, each the first of its kind, and the hashes of all."""
        hashes = _hashes(x).tolist()
        new = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
        for row, (known, keys) in enumerate(zip(self._places, hashes, strict=True)):
            here: set[int] = set()
            for k, key in enumerate(keys):
                if key not in here and known.get(key) not in self._numbers:
                    new[row, k] = True
                here.add(key)
        return new, hashes

    def remember(self, new: Tensor, hashes: list[list[int]], numbers: Tensor) -> None:
        """Remember the numbers (M, ...) of the new points."""
        for (row, k), one in zip(new.nonzero().tolist(), numbers.unbind(0), strict=True):
            at = next(self._turn)
            self._places[row][hashes[row][k]] = at
            self._numbers[at] = one

    def recall(self, hashes: list[list[int]]) -> Tensor:
        """Return the numbers of points that are known, (N, K, ...); then forget the oldest where there are too many."""
        every = zip(self._places, hashes, strict=True)
        found = torch.stack([self._numbers[known[key]] for known, keys in every for key in keys])
        excess = len(self._numbers) - max(1, MAX_BYTES // max(1, found[0].nbytes))
        for at in list(islice(self._numbers, max(0, excess))):
            del self._numbers[at]
        return found.view(len(hashes), -1, *found.shape[1:])

    def take(self, rows: Tensor) -> "Answers":
        """Return the memory of some of the rows, which is shared with this one."""
        found = copy(self)
        found._places = [self._places[row] for row in torch.arange(len(self._places))[rows.cpu()].tolist()]
        return found


def _hashes(x: Tensor) -> Tensor:
    """Return a number for each point (N, K, ...) that depends on every bit."""
    flat = x.flatten(2) + 0.0  # no minus zero
    bits = flat.view(torch.int32 if flat.dtype == torch.float32 else torch.int64).to(torch.int64)
    place = torch.arange(1, flat.shape[2] + 1, device=x.device)
    return mix(bits + mix(place)).sum(2)
