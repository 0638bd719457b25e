"""What searches see that makes their results doubtful: in passing, or in a second answer to what was found."""

import torch
from torch import Tensor

from sigmazero.core.findings import LOOK_FOR, MANY, STEADY, Finding, coded
from sigmazero.core.look import FirstLook


class Noticed:
    """The first looks of all batches of a session."""

    def __init__(self) -> None:
        self._counts: list[Tensor] = []
        self._apart: list[Tensor] = []

    def see(self, look: FirstLook, ids: Tensor, clean: Tensor, strict: bool) -> None:
        """Keep what a batch showed; `clean` is what the model said before, when it was asked about the clean inputs.

        A search that is not `strict` asks a copy, or in coarser numbers, and may well be told something else.
        """
        if look.counts is not None:
            self._counts.append(look.counts)
        if strict and (apart := look.apart(ids, clean)) is not None:
            self._apart.append(apart)

    def see_again(self, apart: list[Tensor], missed: list[Tensor], strict: bool) -> None:
        """Take over by how much fresh answers about what was found differed, in what is allowed.

        What a `strict` search has seen reach the goal and the same model then denies is such a difference too.
        """
        self._apart += apart + (missed if strict else [])
        apart.clear()
        missed.clear()

    def findings(self) -> tuple[Finding, ...]:
        """Random answers, and gradients that are exactly zero in many rows."""
        found = []
        if self._apart and float(torch.stack(self._apart).max()) > 1:
            found.append(coded("SZ003", "The same inputs were answered differently within one run.", STEADY))
        zero, asked = torch.stack(self._counts).sum(0).tolist() if self._counts else (0, 0)
        if zero > MANY * asked:
            detail = f"{zero} of {asked} rows ({zero / asked:.0%}) had no gradient at all where the search began."
            found.append(coded("SZ004", detail, LOOK_FOR))
        return tuple(found)
