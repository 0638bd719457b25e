"""The trace of one search: every point that it asked the model about, with the answers.

A point is kept as its differences from the clean input, so its l0 is their number. The clean input is kept too, so a
picture of the search needs nothing but the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDE = 101  # points along each side of a landscape


@dataclass(frozen=True)
class Trace:
    """The queries about one sample in their order: the clean check first, the verification of the result at the end.

    Query i changed the features index[offsets[i]:offsets[i + 1]] to `value`. `margin` is below 0 where the goal
    is reached; `adversarial` marks points that reach it inside the box, which some searches leave. `landscape` has
    the margins over the box if there are two features, the second one down.
    """

    clean: NDArray[Any]
    margin: NDArray[np.float64]
    prediction: NDArray[np.int64]
    adversarial: NDArray[np.bool_]
    offsets: NDArray[np.int64]
    index: NDArray[np.int64]
    value: NDArray[Any]
    landscape: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.margin)

    @property
    def l0(self) -> NDArray[np.int64]:
        """Return the number of changed features in each query."""
        return np.diff(self.offsets)

    def point(self, query: int) -> NDArray[Any]:
        """Return the input of a query, in its shape."""
        flat = self.clean.flatten()  # a copy
        span = slice(self.offsets[query], self.offsets[query + 1])
        flat[self.index[span]] = self.value[span]
        return flat.reshape(self.clean.shape)

    @property
    def records(self) -> list[int]:
        """Return the queries with an adversarial point of fewer changes than any before."""
        found: list[int] = []
        for query in np.flatnonzero(self.adversarial).tolist():
            if not found or self.l0[query] < self.l0[found[-1]]:
                found.append(query)
        return found
