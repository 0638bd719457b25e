"""The model as a search asks it: itself, under autocast, or a copy that computes in coarser numbers."""

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import torch
from torch import Tensor, nn

from sigmazero.core.attack import Precision
from sigmazero.core.oracle import Model
from sigmazero.run.numbers import Numbers


def search_numbers(precision: Precision | None, caller: Numbers) -> Numbers:
    """The numbers a search computes in: the caller's, unless others were asked for."""
    if precision is None:
        return caller
    return Numbers.strict(caller.device) if precision == "fp32" else Numbers.tf32(caller.device)


def search_precision(precision: Precision | None, device: str | None = None) -> AbstractContextManager[None]:
    """Compute as a search does, from the numbers that hold now; autocast is the model's own affair (see `lower`)."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return search_numbers(precision, Numbers.current(device)).flags()


def lower(model: Model, precision: Precision | None, caller: Numbers | None = None) -> Model:
    """The model as a search in these numbers asks it; `caller` has the numbers of who called."""
    if precision is None and caller is not None and caller.autocast is not None:
        return _Cast(model, caller)
    if precision in (None, "fp32"):
        return model  # in fp32 channels-last is slower for most networks
    return _Coarse(model, torch.bfloat16 if precision == "bf16" else torch.float32)


class _Cast:
    """A model under the caller's autocast, which is not for the attack's own arithmetic around it."""

    def __init__(self, model: Model, numbers: Numbers) -> None:
        self.model, self.numbers = model, numbers

    def __call__(self, x: Tensor) -> Tensor:
        with self.numbers.casting():
            return self.model(x).float()


class _Coarse:
    """A copy of a model in another number format and channels-last, taking and giving fp32.

    A callable that is not a module cannot be copied: it runs under autocast, in its own layout.
    """

    def __init__(self, model: Model, dtype: torch.dtype) -> None:
        self.model, self.dtype = model, dtype
        if isinstance(model, nn.Module):
            self.model = copy.deepcopy(model).requires_grad_(False).to(dtype)
            for parameter in self.model.parameters():
                if parameter.ndim == 4:
                    parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)

    def __call__(self, x: Tensor) -> Tensor:
        if not isinstance(self.model, nn.Module):
            with torch.autocast(x.device.type, self.dtype, enabled=self.dtype != torch.float32):
                return self.model(x).float()
        x = x.to(self.dtype)
        logits: Tensor = self.model(x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x)
        return logits.float()


class OwnCopy(nn.Module):
    """A model that writes to its input, given a copy of each: what was asked about stays as it was."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """Ask about a copy."""
        return self.model(x.clone())


@contextmanager
def quiet(model: Model) -> Iterator[None]:
    """Eval mode, frozen parameters and no autocast while a model is asked; all get their own back.

    Frozen parameters let autograd forget what only their gradients would need. Autocast is for the model alone: who
    asks it under the caller's switches it on again.
    """
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    parameters = list(model.parameters()) if isinstance(model, nn.Module) else []
    modes, needs = [m.training for m in modules], [p.requires_grad for p in parameters]
    try:
        for module in modules:
            module.training = False
        for parameter in parameters:
            parameter.requires_grad_(False)
        with ExitStack() as stack:
            for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
                stack.enter_context(torch.autocast(device, enabled=False))
            yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
        for parameter, need in zip(parameters, needs, strict=True):
            parameter.requires_grad_(need)
