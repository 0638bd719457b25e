"""How a run uses the machine: choices of speed and memory."""

from dataclasses import dataclass
from typing import Literal

import torch

from sigmazero.core.parameters import checked
from sigmazero.core.problem import Problem

Precision = Literal["fp32", "tf32", "bf16"]
Prepare = Literal["auto", "none", "fold", "compile"]


@dataclass(frozen=True)
class Hardware:
    """Choices that change speed and memory.

    precision  number format of the search: None for the float32 settings of the caller's process; "fp32", "tf32" or
               "bf16". Every success is verified in the caller's settings and in strict fp32
    prepare    how the copy of the model that the search asks is made: "none" makes none; "fold" folds batch norms and
               chooses the memory layout; "compile" also compiles it where steps are captured; "auto" folds, and
               compiles where the run is long enough
    capture    replay steps as a CUDA graph: None wherever possible, True insists, False never
    """

    precision: Precision | None = None
    prepare: Prepare = "auto"
    capture: bool | None = None

    def __post_init__(self) -> None:
        """Refuse unknown choices."""
        for name in ("precision", "prepare", "capture"):
            checked(Hardware, name, getattr(self, name))

    def check(self, problem: Problem) -> None:
        """Refuse choices that are impossible for this problem."""
        if self.precision not in (None, "fp32") and problem.x.dtype != torch.float32:
            raise ValueError(
                f"precision={self.precision!r} searches below fp32; the inputs are {problem.x.dtype}: use x.float()"
            )
        if self.capture and not problem.x.is_cuda:
            raise ValueError(f"capture=True needs inputs on a CUDA device; they are on {problem.x.device}")
