"""Every point that a search asked the model about for one sample, with what the model said there.

A point is kept as its differences from the clean input, so its l0 is their number; the clean input is kept too, and
a picture of the search needs nothing but the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from sigmazero.store.pack import Array, pack, pack_indices, unpack, unpack_indices

SIDE = 101  # points along each side of a landscape
PARTS = 9


@dataclass(frozen=True)
class Trace:
    """The questions of one sample in their order: the clean check first, the verification of what was found at the end.

    Question i changed the features index[offsets[i]:offsets[i + 1]] to `value`. `margin` is below 0 where the goal
    is reached; `adversarial` are the points that reach it inside the box, which some searches leave. Of a problem with
    two features `landscape` has the margins over the box, the second feature down.
    """

    clean: Array
    margin: NDArray[np.float64]
    prediction: NDArray[np.int64]
    adversarial: NDArray[np.bool_]
    offsets: NDArray[np.int64]
    index: NDArray[np.int64]
    value: Array
    landscape: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        """Number of questions."""
        return len(self.margin)

    @property
    def l0(self) -> NDArray[np.int64]:
        """Changed features at each question."""
        return np.diff(self.offsets)

    def point(self, question: int) -> Array:
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

    def pack(self) -> bytes:
        """As bytes."""
        plain = [np.array(self.clean.shape), self.clean.flatten(), self.margin, self.prediction]
        changes = [*pack_indices(self.offsets, self.index), self.value]
        land = np.zeros(0) if self.landscape is None else self.landscape.flatten()
        return pack([*plain, self.adversarial.astype(np.int8), *changes, land], compress=True)

    @staticmethod
    def unpack(blob: bytes) -> Trace:
        """From bytes."""
        parts = unpack(blob)
        if len(parts) != PARTS or prod(parts[0].tolist()) != len(parts[1]):
            raise ValueError("a trace has not the parts it should have; the store is damaged")
        shape, clean, margin, prediction, adversarial, lengths, steps, value, land = parts
        offsets, index = unpack_indices(lengths.astype(np.int64), steps.astype(np.int64))
        kind = np.float64 if np.float64 in (clean.dtype, value.dtype) else np.float32
        return Trace(
            clean=clean.astype(kind).reshape(shape.tolist()),
            margin=margin.astype(np.float64),
            prediction=prediction.astype(np.int64),
            adversarial=adversarial.astype(np.bool_),
            offsets=offsets,
            index=index,
            value=value.astype(kind),
            landscape=land.astype(np.float64).reshape(SIDE, SIDE) if len(land) else None,
        )
