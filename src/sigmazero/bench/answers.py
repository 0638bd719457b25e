"""Recognise a model by a few of its answers.

Two models with the same weights and the same code may still answer differently: a Python attribute or an imported
module may have changed. So before stored facts are taken for those of a model, some of its logits are compared.
"""

import torch
from torch import Tensor

from sigmazero.core.model import logits_in
from sigmazero.core.oracle import Model
from sigmazero.run.precision import strictly

ROWS = 16
CLOSE = 1e-4  # of the largest logit: what another machine's rounding may change, and another network's answers exceed


def same_answers(stored: Tensor, fresh: Tensor) -> bool:
    """Whether logits are those of the same model, up to rounding."""
    if stored.shape != fresh.shape:
        return False
    finite = fresh[fresh.isfinite()].abs()
    scale = max(float(finite.max()) if len(finite) else 1.0, 1.0)
    return torch.allclose(stored.double(), fresh.double(), rtol=0, atol=CLOSE * scale, equal_nan=True)


def probe(network: Model, x: Tensor) -> Tensor:
    """The network's logits for up to 16 of these inputs, evenly spread, in double precision on the processor."""
    return _asked(network, x, times=1)[0]


def steady(network: Model, x: Tensor) -> Tensor | None:
    """The same; None for a network that answers otherwise when it is asked again, so that nothing can be compared."""
    first, second = _asked(network, x, times=2)
    return first if same_answers(first, second) else None


def _asked(network: Model, x: Tensor, times: int) -> list[Tensor]:
    rows = torch.linspace(0, len(x) - 1, min(len(x), ROWS), device="cpu").round().long().to(x.device)
    # A network that draws numbers must not draw other ones afterwards because it was looked at.
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []), strictly(network, x.device):
        # Copies, as some models give the same memory again each time.
        return [logits_in(network(x[rows])).to("cpu", torch.float64, copy=True) for _ in range(times)]
