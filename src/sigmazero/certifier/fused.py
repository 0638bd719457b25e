"""Which device takes the kernels of `_kernels` instead of many passes over memory by tensor operations."""

import os
import time
from functools import cache
from types import ModuleType

from torch import Tensor

PATIENCE = 10.0  # seconds of work after which kernels are built: that takes about as long, and what is short needs none


@cache
def _begun() -> float:
    """When kernels were first asked for."""
    return time.perf_counter()


def kernels(a: Tensor) -> ModuleType | None:
    """The kernels, where they can take this; None where the definitions in tensor operations must do.

    With TRITON_INTERPRET=1 Triton's interpreter runs them without a device, for tests.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        begun = _begun()
        if not a.is_cuda or time.perf_counter() - begun < PATIENCE:
            return None
    from sigmazero.certifier import _kernels  # which imports Triton: only where a device asks for it

    return _kernels if _kernels.supports(a) else None
