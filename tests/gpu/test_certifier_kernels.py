"""The compiled kernels of bounds: the checks of tests/certifier."""

import pytest
import torch

from sigmazero.certifier import fused
from sigmazero.certifier.fused import kernels
from tests.certifier.test_kernels import CHECKS

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("check", CHECKS)
def test_compiled_kernels_agree_with_their_definitions(check, monkeypatch):
    monkeypatch.setattr(fused, "PATIENCE", 0.0)
    assert kernels(torch.zeros(1, dtype=torch.float64, device="cuda")) is not None
    check("cuda")
