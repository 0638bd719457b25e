"""Whether two sets of kept answers are those of one model."""

import torch
from torch import Tensor

CLOSE = 1e-4  # of the largest logit: what another machine's rounding may change, and another network's answers exceed


def same_answers(stored: Tensor, fresh: Tensor) -> bool:
    """Whether logits are those of the same model, up to rounding."""
    if stored.shape != fresh.shape:
        return False
    finite = fresh[fresh.isfinite()].abs()
    scale = max(float(finite.max()) if len(finite) else 1.0, 1.0)
    return torch.allclose(stored.double(), fresh.double(), rtol=0, atol=CLOSE * scale, equal_nan=True)
