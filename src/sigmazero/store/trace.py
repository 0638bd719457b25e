"""Every point that a search asked the model about for one sample, with what the model said there.

A point is kept as its differences from the clean input, so its l0 is their number; the clean input is kept too, and
a picture of the search needs nothing but the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDE = 101  # points along each side of a landscape


@dataclass(frozen=True)
class Trace:
    """The questions of one sample in their order: the clean check first, the verification of what was found at the end.

    Question i changed the features index[offsets[i]:offsets[i + 1]] to `value`. `margin` is below 0 where the goal
    is reached; `adversarial` are the points that reach it inside the box, which some searches leave. Of a problem with
    two features `landscape` has the margins over the box, the second feature down.
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
        """Number of questions."""
        return len(self.margin)

    @property
    def l0(self) -> NDArray[np.int64]:
        """Changed features at each question."""
        return np.diff(self.offsets)

    def point(self, question: int) -> NDArray[Any]:
        """The input that was asked about, in its shape."""
        flat = self.clean.flatten()  # a copy
        span = slice(self.offsets[question], self.offsets[question + 1])
        flat[self.index[span]] = self.value[span]
        return flat.reshape(self.clean.shape)

    @property
    def records(self) -> list[int]:
        """The adversarial points with fewer changes than any before."""
        found: list[int] = []
        for question in np.flatnonzero(self.adversarial).tolist():
            if not found or self.l0[question] < self.l0[found[-1]]:
                found.append(question)
        return found
