"""The kernels of bounds against their definitions in tensor operations.

Run by Triton's interpreter where Triton is installed; tests/gpu runs the same checks compiled.
"""

import contextlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import Tensor

from sigmazero.truth import layers

ROOT = Path(__file__).parents[2]
DEFINED = ["layers"]  # modules that ask for kernels


@contextlib.contextmanager
def definitions() -> Iterator[None]:
    """Tensor operations alone."""
    with contextlib.ExitStack() as stack:
        for name in DEFINED:
            stack.enter_context(mock.patch(f"sigmazero.truth.{name}.kernels", return_value=None))
        yield


def close(found: Tensor, wanted: Tensor) -> None:
    """The same up to rounding."""
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-13)


def check_overlay(device: str = "cpu") -> None:
    """Strides, dilations and channels; windows that leave gaps."""
    torch.manual_seed(0)
    for shape in ((2, 3, 4, 4, 3, 1), (3, 2, 3, 2, 2, 5), (2, 1, 1, 3, 2, 2)):
        for stride, dilation in (((1, 1), (1, 1)), ((2, 2), (1, 1)), ((2, 1), (2, 2)), ((1, 3), (1, 2))):
            parts = torch.randn(*shape, dtype=torch.float64, device=device)
            found = layers.overlay(parts, stride, dilation)
            with definitions():
                close(found, layers.overlay(parts, stride, dilation))


CHECKS = [check_overlay]


def check(device: str = "cpu") -> None:
    """All of them."""
    from sigmazero.truth import _kernels

    assert _kernels.supports(torch.zeros(1, dtype=torch.float64, device=device))
    for one in CHECKS:
        one(device)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton, which CUDA builds of torch bring")
def test_interpreted_kernels_agree_with_their_definitions():
    code = "from tests.truth.test_kernels import check; check()"
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, sys.path)])
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path}
    ran = subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
