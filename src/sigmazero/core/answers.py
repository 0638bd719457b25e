"""The answers of a search so far, so that no point is asked about twice.

Points are known by a hash of their bits. This is for searches on the host, which may look at values.
"""

import torch
from torch import Tensor

from sigmazero.core.noise import mix

MAX_BYTES = 512 << 20  # of logits in one batch; older answers are forgotten first


class Answers:
    """Logits by point, for each row of a batch."""

    def __init__(self, clean: Tensor, logits: Tensor) -> None:
        """Begin with the answers about the clean inputs (N, ...)."""
        self._everything: list[dict[int, int]] = [{} for _ in range(len(clean))]
        self._places = self._everything
        self._logits: list[Tensor] = []  # of every point, in the order in which they were asked
        self._first = 0  # the place of the oldest that is left
        self.fill(*self.find(clean[:, None]), logits)

    def find(self, x: Tensor) -> tuple[Tensor, list[list[int]]]:
        """Return which points (N, K, ...) are new, each the first of its kind, and the hashes of all."""
        hashes = _hashes(x).tolist()
        new = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
        for row, (known, keys) in enumerate(zip(self._places, hashes, strict=True)):
            here: set[int] = set()
            for k, key in enumerate(keys):
                if key not in here and known.get(key, -1) < self._first:
                    new[row, k] = True
                here.add(key)
        return new, hashes

    def fill(self, new: Tensor, hashes: list[list[int]], logits: Tensor) -> Tensor:
        """Remember the logits (M, classes) of the new points, and return those of all, (N, K, classes)."""
        at = self._first + len(self._logits)
        self._logits += logits.unbind(0)
        for row, k in new.nonzero().tolist():
            self._places[row][hashes[row][k]] = at
            at += 1
        found = [
            self._logits[known[key] - self._first]
            for known, keys in zip(self._places, hashes, strict=True)
            for key in keys
        ]
        excess = len(self._logits) - max(1, MAX_BYTES // max(1, logits[:1].nbytes))
        if excess > 0:
            del self._logits[:excess]
            self._first += excess
        return torch.stack(found).view(*new.shape, -1)

    def whole(self) -> "Answers":
        """Return to all rows of the batch."""
        self._places = self._everything
        return self

    def take(self, rows: Tensor) -> None:
        """Go on with some of the rows (a boolean mask)."""
        self._places = [self._places[row] for row in rows.nonzero().squeeze(1).tolist()]


def _hashes(x: Tensor) -> Tensor:
    """Return a number for each point (N, K, ...) that depends on every bit."""
    flat = x.flatten(2) + 0.0  # no minus zero
    bits = flat.view(torch.int32 if flat.dtype == torch.float32 else torch.int64).to(torch.int64)
    place = torch.arange(1, flat.shape[2] + 1, device=x.device)
    return mix(bits + mix(place)).sum(2)
