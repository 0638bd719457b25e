"""Pure functions of tensors, and of dataclasses of tensors by rows."""

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

BETA1 = 0.9  # Adam's weight of past gradients
Batched = TypeVar("Batched")  # a dataclass of tensors whose first dimension is the batch


def per_row(values: Tensor, like: Tensor) -> Tensor:
    """Shape one number per row so that it broadcasts over the rows of `like`.

    >>> per_row(torch.tensor([1., 2.]), torch.zeros(2, 3, 4)).shape
    torch.Size([2, 1, 1])
    """
    return values.reshape(-1, *[1] * (like.ndim - 1))


def largest(x: Tensor) -> Tensor:
    """Return the largest magnitude of each row (0 for a row without entries)."""
    return x.abs().flatten(1).amax(1) if x[0:1].numel() else x.new_zeros(len(x))


def cosine(steps: int, start: float, end: float) -> Tensor:
    """Return `steps` + 1 values along half a cosine, from `start` to `end`.

    >>> [round(v, 3) for v in cosine(4, 1.0, 0.1).tolist()]
    [1.0, 0.868, 0.55, 0.232, 0.1]
    """
    angle = torch.arange(steps + 1, dtype=torch.float64, device="cpu") * (math.pi / steps)
    return end + (start - end) * (1 + torch.cos(angle)) / 2


def adam_corrections(steps: int, beta2: float = 0.999) -> tuple[Tensor, Tensor]:
    """Return Adam's bias corrections of every step: 1 − β1^t and √(1 − β2^t), t from 1."""
    # Python's power, as in torch.optim: 1 − β2^t loses three digits at t = 1, where another rounding would show.
    pairs = [(1 - BETA1**t, math.sqrt(1 - beta2**t)) for t in range(1, steps + 1)]
    first, second = torch.tensor(pairs, dtype=torch.float64, device="cpu").unbind(1)
    return first, second


def adam(
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    correction1: Tensor,
    correction2: Tensor,
    beta2: float = 0.999,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the direction of an Adam step (to subtract, times the step size) and the two new moments."""
    mean = torch.lerp(gradient, mean, BETA1)
    square = beta2 * square + (1 - beta2) * gradient * gradient
    return (mean / correction1) / (square.sqrt() / correction2 + 1e-8), mean, square


def keep_largest(values: Tensor, k: Tensor) -> Tensor:
    """Return True at exactly k largest entries of each row of a 2-D tensor, of equal ones the first.

    >>> keep_largest(torch.tensor([[3., 1., 3., 2.]]), torch.tensor([1])).int().tolist()
    [[1, 0, 0, 0]]
    """
    return ranks(values, descending=True) < k[:, None]


def kth_largest(values: Tensor, k: Tensor) -> Tensor:
    """Return the k-th largest entry of each row, k from 1 and one per row.

    >>> kth_largest(torch.tensor([[3., 1., 2.], [5., 5., 4.]]), torch.tensor([2, 2])).tolist()
    [2.0, 5.0]
    """
    return values.flatten(1).sort(dim=1, descending=True).values.gather(1, k[:, None] - 1).squeeze(1)


def prox_l23(size: Tensor, μ: Tensor) -> Tensor:
    """Apply the local proximal operator of μ·|·|^(2/3) to numbers u ≥ 0: s³, s the larger root of s⁴ − u·s + 2μ/3.

    Zero only where no root is real, as in adv-lib. The global minimiser would be zero up to 2·(2μ/3)^(3/4) as well.

    >>> round(prox_l23(torch.tensor([2.]), torch.tensor([0.75])).item(), 4)  # s⁴ − 2s + 1/2 = 0
    1.5698
    """
    half = size.square() / 16
    root = (half.square() - 8 * μ**3 / 729).clamp(min=0).sqrt()
    # The textbook form adds (half − root)^(1/3), which cancels; the product of both cube roots is 2μ/9.
    # exp and log, not a power: that rounds differently at the end of a vector on a CPU, so that a row's result would
    # depend on its place in the batch.
    cube = ((half + root).log() / 3).exp()
    b = 2 * (cube + 2 * μ / 9 / cube)
    s = (b.sqrt() + (2 * size / b.sqrt() - b).clamp(min=0).sqrt()) / 2
    return torch.where(size > 2**2.75 / 3**1.5 * (μ.sqrt() * μ.sqrt().sqrt()), s**3, 0.0)


def ranks(keys: Tensor, descending: bool = False) -> Tensor:
    """Return the place of every entry in its sorted row, from 0; of equal ones the lower index comes first.

    >>> ranks(torch.tensor([[30, 10, 20]])).tolist()
    [[2, 0, 1]]
    """
    order = keys.argsort(dim=1, descending=descending, stable=True)
    return torch.empty_like(order).scatter_(1, order, torch.arange(keys.shape[1], device=keys.device).expand_as(order))


def each(change: Callable[..., Tensor], *states: Batched) -> Batched:
    """Make a dataclass of tensors field by field from others of its kind; it may hold another, and None stays None."""
    first = states[0]
    changed = {}
    for f in fields(first):  # type: ignore[arg-type]
        values = [getattr(state, f.name) for state in states]
        if isinstance(values[0], Tensor):
            changed[f.name] = change(*values)
        elif is_dataclass(values[0]):
            changed[f.name] = each(change, *values)
    return replace(first, **changed)  # type: ignore[type-var]


def choose(rows: Tensor, one: Batched, other: Batched) -> Batched:
    """Return rows of one dataclass of tensors where a boolean mask says so, of another elsewhere."""
    return each(lambda a, b: torch.where(per_row(rows, b), a, b), one, other)


def take(rows_of: Batched, index: Tensor) -> Batched:
    """Return some rows of a dataclass of tensors; fields that are None stay so."""
    return each(lambda v: v[index], rows_of)


def put(rows_of: Batched, index: Tensor, part: Batched) -> Batched:
    """Put back the rows that `take` took from a dataclass of tensors."""
    return each(lambda v, new: v.index_copy(0, index, new), rows_of, part)
