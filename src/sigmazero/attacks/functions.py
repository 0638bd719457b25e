"""Tensor in, tensor out, for people who know adv-lib."""

import inspect
from typing import Any

import torch
from torch import Tensor

from sigmazero.attacks import get
from sigmazero.attacks._swap import SwapSearch
from sigmazero.core.attack import Attack
from sigmazero.core.ops import per_row
from sigmazero.core.oracle import Model

_RUN = tuple(inspect.signature(Attack.run).parameters)


def refine(model: Model, x: Tensor, y: Tensor, x_adv: Tensor, queries: int = 1000, **options: Any) -> Tensor:
    """Make adversarial inputs sparser, wherever they come from; one that cannot be made sparser comes back as it was.

    `queries` is the most that a sample may ask of the model. `options` are those of `swap-search` and of Attack.run.
    Where a point of x_adv does not reach the goal, the search begins at the clean input.
    """
    how = {k: options.pop(k) for k in _RUN if k in options}
    a_step = options.get("proposals", SwapSearch.proposals) + 1
    attack = get("swap-search", steps=max(1, (queries - 5) // a_step), queries=queries, **options)
    result = attack.run(model, x, y, start=x_adv, **how)
    return torch.where(per_row(result.success, x), result.x_adv, x_adv)


def sigma_zero(model: Model, x: Tensor, y: Tensor, steps: int = 1000, **options: Any) -> Tensor:
    """Adversarial inputs with few changed features; a sample that could not be fooled comes back unchanged.

    `options` are the parameters of sz.get("sigma-zero") and of Attack.run. To learn more about each sample than the
    adversarial input, use sz.get("sigma-zero").run(...).
    """
    how = {k: options.pop(k) for k in _RUN if k in options}
    return get("sigma-zero", steps=steps, **options).run(model, x, y, **how).x_adv
