"""Number formats: strict fp32 for whatever must hold; and a model that is asked quietly."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import torch
from torch import Tensor, nn

from sigmazero.core.attack import Precision
from sigmazero.core.oracle import Model


def full_precision() -> AbstractContextManager[None]:
    """Without TF32, for checks that must hold."""
    return _tf32(False)


def search_precision(precision: Precision) -> AbstractContextManager[None]:
    """The numbers a search computes in: TF32 only where it was asked for."""
    return _tf32(precision != "fp32")


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    if not torch.cuda.is_available():
        yield
        return
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


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

    Frozen parameters let autograd forget what only their gradients would need. What is verified in fp32 must be asked
    in fp32, whatever surrounds the call.
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
