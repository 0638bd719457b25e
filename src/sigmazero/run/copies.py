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
from sigmazero.run.fold import fold, foldable
from sigmazero.run.numbers import Numbers
from sigmazero.run.wrapped import unwrapped

log = logging.getLogger(__name__)

# The share of the largest logit by which a copy's logits may differ from the model's own, in the same numbers.
BOUNDS = {torch.float32: 0.01, torch.bfloat16: 0.1}
_ROWS = 32  # clean rows on which they are compared
_DEEP = 5  # convolutions; with fewer a processor gains less than the change of layout costs


class Copy(nn.Module):
    """A model in another number format and layout, taking and giving single precision."""

    def __init__(self, model: nn.Module, dtype: torch.dtype, channels_last: bool) -> None:
        super().__init__()
        self.model, self.dtype, self.channels_last = model.requires_grad_(False).to(dtype), dtype, channels_last
        for parameter in self.model.parameters() if channels_last else ():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        """Ask in the copy's own format."""
        x = x.to(self.dtype)
        logits: Tensor = self.model(x.contiguous(memory_format=torch.channels_last) if self.channels_last else x)
        return logits.float()


class Cast(nn.Module):
    """A model under autocast, which is not for the attack's own arithmetic around it."""

    def __init__(self, model: Model, numbers: Numbers) -> None:
        super().__init__()
        self.model, self.numbers = model, numbers

    def forward(self, x: Tensor) -> Tensor:
        """Ask."""
        with self.numbers.casting():
            return self.model(x).float()


def search_copy(model: Model, x: Tensor, numbers: Numbers, *, bf16: bool, prepare: Prepare) -> Model:
    """The model as a search in these numbers, or in bf16, asks it; itself where a copy gains nothing or cannot be made.

    To be called while the model is quiet, under the flags of these numbers; `x` holds some clean inputs.
    """
    if bf16 and not isinstance(unwrapped(model), nn.Module):
        return Cast(model, replace(numbers, autocast=torch.bfloat16))
    cast = None if bf16 or numbers.autocast is None else numbers
    own = model if cast is None else Cast(model, cast)
    try:
        made = _made(unwrapped(model), x, bf16, numbers == Numbers.strict(numbers.device), prepare != "none")
    except Exception as error:  # whatever a model's own code makes of being copied: the model itself can be asked
        log.warning("the model is searched as it is: no copy of it could be made (%s)", _first_line(error))
        return own
    if made is None:
        return own
    copied = made if cast is None else Cast(made, cast)
    before = _notes(made)
    difference, bound = deviation(copied, own, x[:_ROWS]), BOUNDS[made.dtype]
    if _notes(made) != before:
        log.info("the model is searched as it is: it takes notes of what it is asked, and a copy's would be lost")
        return own
    if difference <= bound:
        return copied
    log.warning(
        "SZ016 the model is searched as it is: the logits of a copy made for speed differ from its own by %.2g of the "
        "largest (%.2g allowed); prepare='none' makes none",
        *(difference, bound),
    )
    return own


def _made(model: Model, x: Tensor, bf16: bool, strict: bool, folds: bool) -> Copy | None:
    """A copy, or None where it would gain nothing."""
    if not isinstance(model, nn.Module):
        return None
    obstacle = _obstacle(model, x)
    if obstacle is not None and folds:
        log.info("no batch norms are folded: %s", obstacle)
    if not bf16 and (obstacle is not None or not folds):
        return None
    channels_last = x.ndim == 4 and folds and _pays(model, x.device, strict)
    folds = folds and obstacle is None and foldable(model)
    if not (bf16 or channels_last or folds):
        return None
    own = copy.deepcopy(model)
    folded = fold(own, x[:2]) if folds else 0
    if folded:
        log.info("%d batch norms are folded for the search", folded)
    return Copy(own, torch.bfloat16 if bf16 else torch.float32, channels_last)


def _obstacle(model: nn.Module, x: Tensor) -> str | None:
    """Why a model is not to be taken apart."""
    if x.dtype != torch.float32:
        return f"the inputs are {x.dtype}"
    if isinstance(model, torch.jit.ScriptModule):
        return "the model is a script"
    others = {p.dtype for p in model.parameters() if p.dtype.is_floating_point} - {torch.float32}
    if others:
        return f"the model has weights in {', '.join(sorted(map(str, others)))}"
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if any(getattr(module, name, None) for module in model.modules() for name in hooks):
        return "the model has hooks, which may look at what would be gone"
    return None


def _notes(model: nn.Module) -> list[str]:
    """What a model has noted outside its tensors: numbers, texts, and how much is in its lists."""
    noted: list[str] = []
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if isinstance(value, (int, float, str)):
                noted.append(f"{name}.{key}={value}")
            elif isinstance(value, (list, dict, set)) and not key.startswith("_"):
                noted.append(f"{name}.{key}: {len(value)}")
    return noted


def _pays(model: nn.Module, device: torch.device, strict: bool) -> bool:
    """Whether convolutions are faster with channels last: on tensor cores, and on a processor where there are many."""
    convolutions = sum(isinstance(module, nn.Conv2d) for module in model.modules())
    return convolutions > 0 and not strict if device.type == "cuda" else convolutions >= _DEEP


def deviation(made: Model, model: Model, x: Tensor) -> float:
    """By which share of the largest logit the answers of two models differ; infinite where only one has an answer."""
    with torch.no_grad():
        own, other = model(x.clone()), made(x.clone())
    finite = own.isfinite().all(1)
    own, other = own[finite].double(), other[finite].double()
    if not len(own):
        return 0.0
    share = (own - other).abs().max() / own.abs().max().clamp(min=torch.finfo(torch.float32).tiny)
    return float(share.nan_to_num(torch.inf))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
