"""Recognise a model by a few of its answers.

Two models with the same weights and the same code may still answer differently: a Python attribute or an imported
module may have changed. So before stored facts are taken for those of a model, some of its logits are compared.
"""

import torch
from torch import Tensor

from sigmazero.core.model import logits_in
from sigmazero.core.oracle import Model
from sigmazero.run.precision import strictly
from sigmazero.store.facts import same_answers as same_answers

ROWS = 16


def probe(network: Model, x: Tensor) -> Tensor:
    """Return the network's logits for up to 16 of these inputs, evenly spread, in double precision on the CPU."""
    return _ask(network, x, times=1)[0]


def steady(network: Model, x: Tensor) -> Tensor | None:
    """Return the same; None for a network whose answers change when it is asked again."""
    first, second = _ask(network, x, times=2)
    return first if same_answers(first, second) else None


def _ask(network: Model, x: Tensor, times: int) -> list[Tensor]:
    rows = torch.linspace(0, len(x) - 1, min(len(x), ROWS), device="cpu").round().long().to(x.device)
    # A network that draws numbers must not draw other ones afterwards because it was looked at.
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []), strictly(network, x.device):
        # Copies, as some models give the same memory again each time.
        return [logits_in(network(x[rows])).to("cpu", torch.float64, copy=True) for _ in range(times)]
