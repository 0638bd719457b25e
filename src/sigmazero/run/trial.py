"""Whether a copy of a model may stand for it in a search: it must answer, and answer the same."""

import torch
from torch import Tensor, nn

from sigmazero.core.oracle import Model
from sigmazero.core.outputs import logits_in

_ROWS = 32  # clean rows on which answers are compared


def tried(made: Model, own: Model, x: Tensor) -> float:
    """How far a copy's answers are from the model's own, as `deviation` says.

    It must find a way back too: code that only runs backwards may not take the copy's layout or number format.
    """
    with torch.enable_grad():
        point = x[:2].clone().requires_grad_()
        logits = logits_in(
            made(point.clone())
        )  # a model may write to its input, which a leaf of autograd does not allow
        if logits.requires_grad:
            torch.autograd.grad(logits.sum(), point)
    return deviation(made, own, x[:_ROWS])


def deviation(made: Model, model: Model, x: Tensor) -> float:
    """By which share of the largest logit the answers of two models differ; infinite where only one has an answer."""
    with torch.no_grad():
        own = logits_in(model(x.clone())).clone()  # some models give the same memory again each time
        other = logits_in(made(x.clone()))
    finite = own.isfinite().all(1)
    own, other = own[finite].double(), other[finite].double()
    if not len(own):
        return 0.0
    share = (own - other).abs().max() / own.abs().max().clamp(min=torch.finfo(torch.float32).tiny)
    return float(share.nan_to_num(torch.inf))


def apart(made: nn.Module, model: nn.Module) -> bool:
    """Whether a copy has nothing of the model's own: how a class is copied is for the class to say."""
    return not _parts(made) & _parts(model)


def _parts(model: nn.Module) -> set[int]:
    return {id(part) for part in (*model.modules(), *model.parameters(), *model.buffers())}
