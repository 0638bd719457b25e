"""Steps whose arithmetic is compiled. Importing this loads torch's compiler, so it is imported only where it is used.

A step is cut before and after each call of the model, which is compiled apart or not at all.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from sigmazero.core.attack import Attack
from sigmazero.core.oracle import Oracle
from sigmazero.run.steppers import one_step

TRIALS = 2  # steps thrown away before a recording, in which the compiler works


class FusedOracle(Oracle):
    """An oracle whose calls of the model the compiler leaves alone."""

    @classmethod
    def like(cls, oracle: Oracle) -> "FusedOracle":
        """The same oracle, with the same tensors."""
        fused = cls.__new__(cls)
        fused.__dict__.update(oracle.__dict__)
        return fused

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def row(self, table: Tensor, i: Tensor) -> tuple[Tensor, ...]:
        """The numbers of a step; which table they are from is nothing to compile anew for."""
        return super().row(table, i)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _ask(self, x: Tensor) -> Tensor:
        return super()._ask(x)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _forward(self, x: Tensor) -> Tensor:
        return super()._forward(x)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _backward(self, slope: Tensor, again: bool = False) -> Tensor:
        return super()._backward(slope, again)


def compiled_step(attack: Attack) -> Callable[[Attack, Oracle, Any], Any]:
    """`one_step`, compiled for each shape apart: the shapes of a recording never change."""
    for name, value in vars(type(attack)).items():
        if isinstance(value, cached_property):  # a schedule, computed once: nothing to compile
            getattr(attack, name)
    return torch.compile(one_step, dynamic=False)


@contextmanager
def many_variants() -> Iterator[None]:
    """Let the compiler make a variant for every recording and attack; by default it gives up at the eighth."""
    with torch._dynamo.config.patch(recompile_limit=256):
        yield
