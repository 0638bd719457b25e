"""Tensor in, tensor out, for people who know adv-lib."""

from typing import Any

from torch import Tensor

from sigmazero.attacks import get
from sigmazero.oracle import Model

_RUN = ("targeted", "bounds", "unit", "mask", "budget", "batch_size", "seed", "ids", "progress")


def sigma_zero(model: Model, x: Tensor, y: Tensor, steps: int = 1000, **options: Any) -> Tensor:
    """Adversarial inputs with few changed features; a sample that could not be fooled comes back unchanged.

    `options` are the parameters of sz.get("sigma-zero") and of Attack.run. Use the latter for everything that is
    known of each sample.
    """
    how = {k: options.pop(k) for k in _RUN if k in options}
    return get("sigma-zero", steps=steps, **options).run(model, x, y, **how).x_adv
