"""Our attacks in adv-lib's shape: `sigma_zero(model, inputs, labels, targeted=False, num_steps=100) -> inputs`.

adv-lib itself is not needed. With `targeted=True` labels, or `targets` where some harness passes them too, are the
classes to reach; a sample that could not be fooled comes back unchanged. The names that adv-lib and the authors'
σ-zero have for parameters are understood.

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

from sigmazero.adapters._natives import Natives, configure, function_name, simple
from sigmazero.attacks import get
from sigmazero.attacks.functions import our_names
from sigmazero.core.attack import Attack
from sigmazero.core.oracle import Model

__all__ = ["run"]


def run(
    attack: str | Attack,
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    targeted: bool = False,
    targets: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Run an attack, by name or object, and return adversarial inputs as adv-lib does."""
    made = get(attack) if isinstance(attack, str) else attack
    options = our_names(made, function_name(made.name), (), (), options)
    goal = targets if targeted and targets is not None else labels
    return configure(made, options).inputs(model, inputs, goal, targeted=targeted)


__getattr__ = Natives(__name__, lambda attack: simple(run, attack, __name__), __all__, function_name)
__dir__ = __getattr__.names
