"""Which device takes the kernels of `_kernels` instead of many passes over memory by tensor operations."""

import os
from types import ModuleType

from torch import Tensor


def kernels(a: Tensor) -> ModuleType | None:
    """The kernels, where they can take this; None where the definitions in tensor operations must do.

    With TRITON_INTERPRET=1 Triton's interpreter runs them without a device, for tests.
    """
    if not a.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return None
    from sigmazero.truth import _kernels  # which imports Triton: only where a device asks for it

    return _kernels if _kernels.supports(a) else None
