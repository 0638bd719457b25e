"""Recognise a model by a few of its answers.

Two models with the same weights and the same code may still answer differently: a Python attribute or an imported
module may have changed. So before stored facts are taken for those of a model, some of its logits are compared.
"""

import torch
from torch import Tensor

from sigmazero.core.oracle import Model
from sigmazero.run.turns import strictly

ROWS = 16
CLOSE = 1e-4  # of the largest logit: what another machine's rounding may change, and another network's answers exceed


def probe(network: Model, x: Tensor) -> Tensor:
    """The network's logits for up to 16 of these inputs, evenly spread, in double precision on the processor."""
    rows = torch.linspace(0, len(x) - 1, min(len(x), ROWS)).round().long()
    with strictly(network, x.device):
        logits: Tensor = network(x[rows.to(x.device)])
    return logits.double().cpu()


def same_answers(stored: Tensor, fresh: Tensor) -> bool:
    """Whether logits are those of the same model, up to rounding."""
    if stored.shape != fresh.shape:
        return False
    finite = fresh[fresh.isfinite()].abs()
    scale = max(float(finite.max()) if len(finite) else 1.0, 1.0)
    return torch.allclose(stored.double(), fresh.double(), rtol=0, atol=CLOSE * scale, equal_nan=True)
