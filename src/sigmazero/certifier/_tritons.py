"""Triton, which comes with CUDA builds of torch, and words for what its programs see; None where it is not there."""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any, TypeAlias

triton: Any = importlib.import_module("triton") if importlib.util.find_spec("triton") else None
tl: Any = importlib.import_module("triton.language") if triton else None

# The compiler looks names up that it meets in an annotation and knows only its own: these are quoted there.
Number: TypeAlias = Any
Pointer: TypeAlias = Any
if TYPE_CHECKING:
    constexpr: TypeAlias = Any
else:
    constexpr = tl.constexpr if triton else Any
