"""Wrappers that only say how a model is run, torch.compile and DataParallel: the model inside, and how to ask it."""

from typing import Any

import torch
from torch import Tensor, nn

from sigmazero.core.oracle import Model
from sigmazero.core.outputs import logits_in
from sigmazero.run.precision import OwnCopy


def is_compiled(model: Model) -> bool:
    """Whether a model, or a module in it, is a compiled one."""
    if isinstance(model, nn.Module):
        return any(_inside(part) is not None for part in model.modules())
    return _inside(model) is not None


def uncompiled(model: Model) -> Model:
    """The model as it was before it was compiled; itself if it never was, or if only parts of it were."""
    if isinstance(model, OwnCopy):
        inner = uncompiled(model.model)
        return model if inner is model.model else OwnCopy(inner)
    found = _inside(model)
    return model if found is None else found


def unwrapped(model: Model) -> Model:
    """The network itself, for a copy that is run otherwise."""
    if isinstance(model, OwnCopy):
        return OwnCopy(unwrapped(model.model))
    if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return unwrapped(model.module)
    inside = getattr(model, "_orig_mod", None)
    return model if inside is None else unwrapped(inside)


def padded(model: Model, x: Tensor, rows: int) -> Tensor:
    """The answers to some rows, asked as so many: a compiled model is compiled anew for each number of them."""
    if len(x) >= rows:
        return logits_in(model(x))
    return logits_in(model(torch.cat([x, x[:1].expand(rows - len(x), *x.shape[1:])])))[: len(x)]


def _inside(model: Any) -> Model | None:
    """What torch.compile(model), torch.compile(function) or model.compile() has compiled; None if nothing was."""
    if getattr(model, "_compiled_call_impl", None) is not None:
        return model._call_impl  # type: ignore[no-any-return]
    found: Model | None = getattr(model, "_orig_mod", None) or getattr(model, "_torchdynamo_orig_callable", None)
    return found
