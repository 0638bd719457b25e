"""Dataclasses of tensors whose first dimension is the batch: a state, a tally, taken apart and put together by rows."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

from torch import Tensor

Batched = TypeVar("Batched")


def each(change: Callable[..., Tensor], *states: Batched) -> Batched:
    """A dataclass of tensors, field by field from others of its kind; one may hold another, and None stays None."""
    first = states[0]
    changed = {}
    for f in fields(first):  # type: ignore[arg-type]
        values = [getattr(state, f.name) for state in states]
        if isinstance(values[0], Tensor):
            changed[f.name] = change(*values)
        elif is_dataclass(values[0]):
            changed[f.name] = each(change, *values)
    return replace(first, **changed)  # type: ignore[type-var]


def take(rows_of: Batched, index: Tensor) -> Batched:
    """The same dataclass of tensors with some of its rows; fields that are None stay so."""
    return each(lambda v: v[index], rows_of)


def put(rows_of: Batched, index: Tensor, part: Batched) -> Batched:
    """The same dataclass of tensors with some of its rows replaced: what `take` took, put back."""
    return each(lambda v, new: v.index_copy(0, index, new), rows_of, part)
