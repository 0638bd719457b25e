"""How a run uses the hardware. None of it changes what is reported as true."""

from dataclasses import dataclass, replace
from typing import get_args

import torch

from sigmazero.core.attack import Precision, Prepare
from sigmazero.core.problem import Problem, integer
from sigmazero.run.numbers import Numbers
from sigmazero.run.precision import search_numbers


@dataclass(frozen=True)
class Hardware:
    """Choices that change speed and memory.

    precision  numbers of the search: None for those that the caller's process computes in; "fp32", "tf32" or "bf16";
               whatever it claims must hold in the caller's numbers and in strict fp32 before it is believed
    capture    record a step as a CUDA graph: None wherever possible, True insists, False never
    fuse       compile the attack's own arithmetic: None when that pays, True at once, False never
    prepare    what is done to the copy that the search asks: "none"; "fold" folds batch norms and chooses the layout;
               "compile" also compiles it where steps are recorded; "auto" folds, and compiles when that pays
    max_memory bytes of device memory to stay below
    """

    precision: Precision | None = None
    capture: bool | None = None
    fuse: bool | None = None
    max_memory: int | None = None
    prepare: Prepare = "auto"

    def check(self, problem: Problem) -> None:
        """Refuse what cannot be done for this problem."""
        if self.precision not in (None, *get_args(Precision)):
            known = ", ".join(map(repr, get_args(Precision)))
            raise ValueError(
                f"precision={self.precision!r} is not one of {known} (None for the numbers you compute in)"
            )
        if self.precision not in (None, "fp32") and problem.x.dtype != torch.float32:
            raise ValueError(
                f"precision={self.precision!r} searches below fp32; the inputs are {problem.x.dtype}: use x.float()"
            )
        if self.prepare not in get_args(Prepare):
            raise ValueError(f"prepare={self.prepare!r} is not one of {', '.join(map(repr, get_args(Prepare)))}")
        for name, choice in (("capture", self.capture), ("fuse", self.fuse)):
            if choice not in (None, True, False):
                raise ValueError(f"{name}={choice!r} is not one of True, False (None where it pays)")
        if self.max_memory is not None and not (integer(self.max_memory) and self.max_memory >= 1):
            raise ValueError(f"max_memory={self.max_memory!r} must be a whole number of bytes, 1 or more")
        if self.capture and not problem.x.is_cuda:
            raise ValueError(f"capture=True needs inputs on a CUDA device; they are on {problem.x.device}")
        if self.max_memory is not None and not problem.x.is_cuda:
            raise ValueError("max_memory limits a CUDA device; on a CPU choose batch_size")

    def plain(self) -> "Hardware":
        """For a model without gradients: it is asked as it is, in its own numbers, and its steps are not recorded."""
        return replace(self, precision=None, capture=False, fuse=False, prepare="none")

    def strict(self, caller: Numbers) -> bool:
        """Whether the search itself computes in the inputs' own precision, for a caller with these numbers."""
        return self.precision in (None, "fp32") and search_numbers(self.precision, caller).strictly
