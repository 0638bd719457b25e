"""Our attacks in adv-lib's shape: `sigma_zero(model, inputs, labels, targeted=False, num_steps=100) -> inputs`.

adv-lib itself is not needed. With `targeted=True` labels are the classes to reach; a sample that could not be fooled
comes back unchanged. The names that adv-lib and the authors' σ-zero have for its parameters are understood. Some
harnesses pass `targets` beside the labels; they are the classes to reach when `targeted` is set.

>>> import torch
>>> from sigmazero.adapters.adv_lib import sigma_zero
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> x = torch.full((1, 4), 0.5)
>>> int((sigma_zero(model, x, torch.tensor([0]), num_steps=20) != x).sum())
2
"""

from typing import Any

from torch import Tensor

from sigmazero.adapters._natives import Natives, function_name, simple, told
from sigmazero.core.attack import Attack
from sigmazero.core.oracle import Model

__all__ = ["run"]

# Other people's names for what we call so.
ALIASES = {
    "num_steps": "steps",
    "max_iter": "steps",
    "η_0": "step_size",
    "lr": "step_size",
    "σ": "smoothing",
    "sigma": "smoothing",
    "τ_0": "threshold",
    "τ_factor": "threshold_rate",
    "t": "threshold_rate",
    "ε": "budget",
    "epsilon_budget": "budget",
    "verbose": "progress",
}


def run(
    attack: str | Attack,
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    targeted: bool = False,
    targets: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Adversarial inputs in adv-lib's shape."""
    named = {ALIASES.get(name, name): value for name, value in options.items()}
    if len(named) < len(options):
        raise TypeError(f"an option is given twice, by two names: {', '.join(options)}")
    goal = targets if targeted and targets is not None else labels
    return told(attack, named).inputs(model, inputs, goal, targeted=targeted)


_natives = Natives(__name__, lambda attack: simple(run, attack, __name__), function_name)
__getattr__ = _natives


def __dir__() -> list[str]:
    return [*_natives.names(), *__all__]
