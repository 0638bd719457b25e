"""In which numbers a search computes; and a model that is asked quietly."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import torch
from torch import Tensor, nn

from sigmazero.core.attack import Precision
from sigmazero.core.modes import in_eval_mode
from sigmazero.core.oracle import Model
from sigmazero.run.numbers import Numbers


def search_numbers(precision: Precision | None, caller: Numbers) -> Numbers:
    """The numbers a search computes in: the caller's, unless others were asked for."""
    if precision is None:
        return caller
    return Numbers.strict(caller.device) if precision == "fp32" else Numbers.tf32(caller.device)


def search_precision(precision: Precision | None, device: str | None = None) -> AbstractContextManager[None]:
    """Compute as a search does, from the numbers that hold now; autocast is the copy's own affair."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return search_numbers(precision, Numbers.current(device)).flags()


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
    with in_eval_mode(model), ExitStack() as stack:
        # Inference tensors have no gradients, and torch does not let anybody say so. In eval mode there may be others.
        parameters = [p for p in model.parameters() if not p.is_inference()] if isinstance(model, nn.Module) else []
        needs = [p.requires_grad for p in parameters]
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            stack.enter_context(torch.autocast(device, enabled=False))
        try:
            for parameter in parameters:
                parameter.requires_grad_(False)
            yield
        finally:
            for parameter, need in zip(parameters, needs, strict=True):
                parameter.requires_grad_(need)
