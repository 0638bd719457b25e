"""Tensor in, tensor out, for people who know adv-lib."""

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sigmazero.attacks import get
from sigmazero.attacks._swap import SwapSearch
from sigmazero.core.attack import Attack, Precision, Prepare
from sigmazero.core.domain import Unit
from sigmazero.core.inputs import Bounds
from sigmazero.core.layout import Order
from sigmazero.core.ops import per_row
from sigmazero.core.oracle import Model

if TYPE_CHECKING:
    from sigmazero.spaces.space import Space

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
    return torch.where(per_row(result.found, x), result.x_adv, x_adv)


def sigma_zero(
    model: Model,
    x: Tensor,
    y: Tensor,
    steps: int = 1000,
    *,
    step_size: float = 1.0,
    step_size_end: float = 0.1,
    beta2: float = 0.999,
    loss: str = "hinge",
    smoothing: float = 1e-3,
    threshold: float = 0.3,
    threshold_rate: float = 0.01,
    normalize: bool = True,
    adaptive_threshold: bool = True,
    projection: bool = True,
    l0_term: bool = True,
    optimizer: str = "adam",
    order: str = "released",
    targeted: bool = False,
    bounds: Bounds = (0.0, 1.0),
    unit: Unit = "feature",
    layout: Order | None = None,
    mask: Tensor | None = None,
    space: "Space | None" = None,
    budget: int | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    ids: Tensor | Sequence[int] | None = None,
    progress: bool = False,
    start: Tensor | None = None,
    pool: Tensor | None = None,
    margin: float = 0.0,
    precision: Precision | None = None,
    capture: bool | None = None,
    fuse: bool | None = None,
    max_memory: int | None = None,
    prepare: Prepare = "auto",
) -> Tensor:
    """Adversarial inputs with few changed features, within the budget; a sample without one comes back unchanged.

    The parameters are those of sz.get("sigma-zero") and of Attack.run. To learn more about each sample than the
    adversarial input, use sz.get("sigma-zero").run(...).
    """
    given = dict(locals())
    how = {name: given.pop(name) for name in _RUN if name in given}
    result = get("sigma-zero", **given).run(**how)
    return torch.where(per_row(result.success, x), result.x_adv, x.detach())
