"""Proved lower bounds: no attack fools a model on a row with fewer changes.

A bound is about a model, a row, a unit and the constraints, but no attack. So it is stored apart from the cells. It is
found by content: a row by the digest of its input and label. If an attack has a verified point below the bound, one of
the two is wrong, and an error names both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sigmazero.core.messages import digest
from sigmazero.core.metrics import Outcome
from sigmazero.core.problem import integer
from sigmazero.store.facts import CellInfo, Facts

SIZE = 16  # bytes of a row's digest


class ProofKey(NamedTuple):
    """The subject of a bound, besides the row.

    model   SHA-256 of the weights
    code    digest of all else that decides what the model computes, as a cell's identity has it
    unit    what counts as one change
    space   digest of what may change
    """

    model: str
    code: str
    unit: str
    space: str

    @staticmethod
    def of(weights: str, code: Any, unit: str, bounds: Sequence[Any], mask: Any = None, space: Any = None) -> ProofKey:
        """Return the key for the parts of an identity."""
        return ProofKey(weights, digest(code), unit, digest([list(bounds), mask, space]))

    @staticmethod
    def of_cell(info: CellInfo) -> ProofKey | None:
        """Return the key for the question of a cell; None where it does not say all of it."""
        identity = info.identity or {}
        model = identity.get("model")
        if not isinstance(model, dict) or "code" not in model:
            return None
        return ProofKey.of(
            info.model_sha256, model["code"], info.unit, info.bounds, identity.get("mask"), identity.get("space")
        )


@dataclass(frozen=True)
class Proof:
    """A row cannot be fooled with fewer than `least` changes; which method and version proved it, in how long."""

    least: int
    method: str
    version: int
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a bound that is no positive number."""
        if not integer(self.least) or self.least < 1:
            raise ValueError(
                f"a proof says that {self.least!r} changes are needed; it must be a whole number, 1 or more"
            )


def row_digests(images: Tensor, labels: Tensor) -> list[str]:
    """Return for each row a digest of its input, with shape and type, and of its label."""
    images = images.detach().cpu().contiguous()
    head = f"row 1 {str(images.dtype).removeprefix('torch.')} {','.join(map(str, images.shape[1:]))} "
    bits = images.flatten(1).view({2: torch.int16, 4: torch.int32, 8: torch.int64}[images.itemsize]).numpy()
    bits = bits.astype(bits.dtype.newbyteorder("<"), copy=False)
    return [
        hashlib.blake2b(f"{head}{label}\n".encode() + row.tobytes(), digest_size=SIZE).hexdigest()
        for row, label in zip(bits, labels.tolist(), strict=True)
    ]


def contradictions(info: CellInfo, facts: Facts, proofs: Sequence[Proof | None]) -> Iterator[str]:
    """Yield a message for every verified point below its bound."""
    changes = facts.l0_pixel if info.unit == "pixel" else facts.l0
    found = np.where(facts.outcome == Outcome.ALREADY, 0.0, np.where(facts.found, changes, np.inf))
    for row, changed, proof in zip(facts.row, found, proofs, strict=True):
        if proof is not None and changed < proof.least:
            yield (
                f"row {row} of {info.dataset}: {info.attack} fools {info.model} with {changed:g} "
                f"changed {info.unit}s [{info.key[:12]}], and {proof.method} {proof.version} proves that "
                f"{proof.least} are needed; one of both is wrong: replay the point, prove the row again, and "
                "leave out what does not hold"
            )
