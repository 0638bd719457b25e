"""The copy of a model that a search asks: the same function, made ready for speed.

A search may run on any faithful copy, because whatever it claims is verified on the model itself. Batch norms are
folded into the layers before them, images are laid out with their channels last where that pays, and a search in bf16
has its weights so. A copy whose answers are not the model's own is dropped.
"""

import copy
import logging
from dataclasses import replace

import torch
from torch import Tensor, nn

from sigmazero.core.attack import Prepare
from sigmazero.core.oracle import Model
from sigmazero.core.outputs import logits_in
from sigmazero.run.fold import fold, foldable
from sigmazero.run.numbers import Numbers
from sigmazero.run.trial import apart, deviation, tried
from sigmazero.run.wrapped import unwrapped

log = logging.getLogger(__name__)

# The share of the largest logit by which a copy's logits may differ from the model's own, in the same numbers.
BOUNDS = {torch.float32: 0.01, torch.bfloat16: 0.1}
_DEEP = 5  # convolutions; with fewer a processor gains less than the change of layout costs


class Copy(nn.Module):
    """A model in another number format and layout, taking and giving single precision."""

    def __init__(self, model: nn.Module, dtype: torch.dtype, channels_last: bool, folded: int = 0) -> None:
        super().__init__()
        self.folded = folded  # batch norms, for the record
        self.model, self.dtype, self.channels_last = model.requires_grad_(False).to(dtype), dtype, channels_last
        for parameter in self.model.parameters() if channels_last else ():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        """Ask in the copy's own format."""
        x = x.to(self.dtype)
        logits = self.model(x.contiguous(memory_format=torch.channels_last) if self.channels_last else x)
        return logits_in(logits).float()


class Cast(nn.Module):
    """A model under autocast, which is not for the attack's own arithmetic around it."""

    def __init__(self, model: Model, numbers: Numbers) -> None:
        super().__init__()
        self.model, self.numbers = model, numbers

    def forward(self, x: Tensor) -> Tensor:
        """Ask."""
        with self.numbers.casting():
            return logits_in(self.model(x)).float()


def search_copy(model: Model, x: Tensor, numbers: Numbers, *, bf16: bool, prepare: Prepare) -> Model:
    """The model as a search in these numbers, or in bf16, asks it; itself where a copy gains nothing or cannot be made.

    To be called while the model is quiet, under the flags of these numbers; `x` holds some clean inputs.
    """
    inner, lowered = unwrapped(model), Cast(model, replace(numbers, autocast=torch.bfloat16))
    if not isinstance(inner, nn.Module):
        return lowered if bf16 else _cast(model, numbers)
    own = model if bf16 else _cast(model, numbers)
    strict, folds = numbers == Numbers.strict(numbers.device), prepare != "none"
    layout = folds and x.ndim == 4 and _pays(inner, x.device, strict)
    for channels_last in dict.fromkeys((layout, False)):
        try:
            made = _made(inner, x, bf16, folds, channels_last)
            if made is None:
                return own
            copied = made if bf16 else _cast(made, numbers)
            difference = tried(copied, own, x)
        except Exception as error:  # whatever a model's own code makes of being copied: the model itself can be asked
            failure = _first_line(error)
        else:
            return own if _differs(made, difference, own, x) else copied
    return _as_it_is(own, lowered if bf16 else None, x, failure)


def _cast(model: Model, numbers: Numbers) -> Model:
    """A model under the autocast of the caller's numbers, if there is one."""
    return model if numbers.autocast is None else Cast(model, numbers)


def _as_it_is(own: Model, lowered: Cast | None, x: Tensor, failure: str) -> Model:
    """The model itself, under autocast where a search in bf16 is wanted and it can be asked so."""
    if lowered is not None:
        try:
            good = tried(lowered, own, x) <= BOUNDS[torch.bfloat16]
        except Exception as error:
            failure = f"{failure}; under autocast: {_first_line(error)}"
        else:
            if good:
                log.warning("the model is searched in bf16 by autocast: no copy of it could be made (%s)", failure)
                return lowered
    log.warning("the model is searched as it is: no copy of it could be made (%s)", failure)
    return own


def _differs(made: Copy, difference: float, own: Model, x: Tensor) -> bool:
    """Whether a copy's answers are too far from the model's own; said, as is what was folded in one that is used."""
    bound = BOUNDS[made.dtype]
    if difference <= bound:
        if made.folded:
            log.info("%d batch norms are folded for the search", made.folded)
        return False
    random = deviation(own, own, x[:2]) > bound / 10
    log.warning(
        "SZ016 the model is searched as it is: the logits of a copy made for speed differ from its own by %.2g of the "
        "largest (%.2g allowed); %s",
        *(difference, bound),
        "and so do its own from call to call: is dropout on?" if random else "prepare='none' makes none",
    )
    return True


def _made(model: nn.Module, x: Tensor, bf16: bool, folds: bool, channels_last: bool) -> Copy | None:
    """A copy, or None where it would gain nothing."""
    obstacle = _obstacle(model, x)
    if obstacle is not None and folds:
        log.info("no batch norms are folded: %s", obstacle)
    if not bf16 and (obstacle is not None or not folds):
        return None
    folds = folds and obstacle is None and foldable(model)
    if not (bf16 or channels_last or folds):
        return None
    own = copy.deepcopy(model)
    if not apart(own, model):
        raise TypeError(f"what {type(model).__name__} calls a deep copy shares parts with it")
    folded = fold(own, x[:2]) if folds else 0
    if not (bf16 or channels_last or folded):
        return None
    return Copy(own, torch.bfloat16 if bf16 else torch.float32, channels_last, folded)


def _obstacle(model: nn.Module, x: Tensor) -> str | None:
    """Why a model is not to be taken apart."""
    if x.dtype != torch.float32:
        return f"the inputs are {x.dtype}"
    if isinstance(model, torch.jit.ScriptModule):
        return "the model is a script"
    tensors = (*model.parameters(), *model.buffers())
    others = {t.dtype for t in tensors if t.is_floating_point() or t.is_complex()} - {torch.float32}
    if others:
        return f"the model has weights in {', '.join(sorted(map(str, others)))}"
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if any(getattr(module, name, None) for module in model.modules() for name in hooks):
        return "the model has hooks, which may look at what would be gone"
    return None


def _pays(model: nn.Module, device: torch.device, strict: bool) -> bool:
    """Whether convolutions are faster with channels last: on tensor cores, and on a processor where there are many."""
    convolutions = sum(isinstance(module, nn.Conv2d) for module in model.modules())
    return convolutions > 0 and not strict if device.type == "cuda" else convolutions >= _DEEP


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
