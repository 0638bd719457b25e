"""Networks of torch: where the logits of Hugging Face models are, and what timm and processors say of normalising."""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sigmazero.core.model import ChannelsLast, logits_in
from sigmazero.core.oracle import Model
from sigmazero.models.any import prints
from sigmazero.models.any.bridge import Pull
from sigmazero.models.any.module import Recognised
from sigmazero.models.normalize import Normalize, Statistics

WRITE = 'write normalize="MEAN,STD", or normalize=False for a network that takes values in [0, 1]'


class Logits(nn.Module):
    """A network that returns a tuple, a dictionary or an object with `logits`, asked for these alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        return logits_in(self.model(x))


class TorchFunction(nn.Module):
    """A function of tensors as a module; what it holds is hidden from torch, but tells it from others."""

    def __init__(self, function: Model, order: str = "NCHW") -> None:
        super().__init__()
        self._function = (function,)
        self.order = order

    def forward(self, x: Tensor) -> Tensor:
        """Call it."""
        return logits_in(self._function[0](x.movedim(1, -1) if self.order == "NHWC" and x.ndim > 2 else x))

    def get_extra_state(self) -> str:
        """What tells this function from others, as the weights of a network do."""
        return prints.of_function(self._function[0])

    def set_extra_state(self, state: object) -> None:
        """A function cannot be filled with weights: it must be the very one."""
        if state != self.get_extra_state():
            raise ValueError("this is not the function that was saved; give that one")

    def extra_repr(self) -> str:
        """Show what is inside."""
        return f"{getattr(self._function[0], '__name__', type(self._function[0]).__name__)}, takes {self.order}"


def normalisation(model: nn.Module, processor: Any = None) -> Statistics | None:
    """Mean and deviation, for values in [0, 1], that a processor or timm's `pretrained_cfg` names; None for none.

    >>> from types import SimpleNamespace
    >>> plain = SimpleNamespace(do_normalize=True, image_mean=[0.5], image_std=[0.25])
    >>> normalisation(nn.Identity(), plain)
    ((0.5,), (0.25,))
    >>> bytes_of = {"do_normalize": False, "do_rescale": True, "rescale_factor": 1 / 127.5}
    >>> normalisation(nn.Identity(), SimpleNamespace(**bytes_of))  # 255 · x / 127.5: twice x
    ((0.0,), (0.5,))
    """
    if processor is not None:
        return _of_processor(processor)
    config = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    if config is None:
        return None
    mean, std = (_read(config, name) for name in ("mean", "std"))
    if mean is None or std is None:
        raise ValueError(f"the network's pretrained_cfg names no mean and std; {WRITE}")
    return _pair(mean, std)


def _of_processor(processor: Any) -> Statistics | None:
    processor = getattr(processor, "image_processor", processor)
    normalises = _read(processor, "do_normalize")
    mean, std = (_read(processor, name) for name in ("image_mean", "image_std"))
    if normalises is None and mean is None:
        raise ValueError(f"the processor {type(processor).__name__} names no image_mean and image_std; {WRITE}")
    if not normalises:
        mean, std = (0.0,), (1.0,)
    if mean is None or std is None:
        raise ValueError(f"the processor {type(processor).__name__} names no image_mean and image_std; {WRITE}")
    # Pixels from 0 to 255 are made value · factor before they are normalised: of ours, 255 · x · factor.
    rescale, factor = _read(processor, "do_rescale"), _read(processor, "rescale_factor")
    scale = 255 * float(factor) if rescale and factor is not None else 1.0 if rescale is None else 255.0
    scale = 1.0 if abs(scale - 1) < 1e-9 else scale
    mean, std = _pair([value / scale for value in mean], [value / scale for value in std])
    return None if (set(mean), set(std)) == ({0.0}, {1.0}) else (mean, std)


def _pair(mean: Any, std: Any) -> Statistics:
    return tuple(float(value) for value in mean), tuple(float(value) for value in std)


def _read(config: Any, name: str) -> Any:
    return config.get(name) if isinstance(config, dict) else getattr(config, name, None)


def torch_model(model: nn.Module, normalize: Statistics | None, order: str = "NCHW") -> nn.Module:
    """A network as attacks take it: inputs in [0, 1] in, channels first; logits out."""
    odd = any(kind.__module__.partition(".")[0] == "transformers" for kind in type(model).__mro__)
    inner = ChannelsLast(model) if order == "NHWC" else Logits(model) if odd else model
    if normalize is None:
        return inner
    parameter = next(model.parameters(), None)
    with torch.device("cpu"):
        front = Normalize(*normalize)
    return nn.Sequential(front.to("cpu" if parameter is None else parameter.device), inner)


def black_box(model: Model, name: str, ability: str) -> Recognised:
    """A network or a function of tensors asked through arrays, so that it can be counted, limited and cached."""
    parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    place = torch.device("cpu") if parameter is None else parameter.device

    def ask(x: NDArray[Any]) -> NDArray[Any]:
        with torch.no_grad():
            return logits_in(model(torch.from_numpy(x).to(place))).cpu().numpy()

    def with_pull(x: NDArray[Any]) -> tuple[NDArray[Any], Pull]:
        with torch.enable_grad():
            point = torch.from_numpy(x).to(place).requires_grad_()
            answer = logits_in(model(point))

        def pull(slope: NDArray[Any]) -> NDArray[Any]:
            back = torch.autograd.grad(answer, point, torch.from_numpy(slope).to(answer), retain_graph=True)
            return back[0].cpu().numpy()

        return answer.detach().cpu().numpy(), pull

    def told() -> str:
        return prints.of_object(model) if isinstance(model, nn.Module) else prints.of_function(model)

    # Labels are argmaxes of what it says: the rest is thrown away at the door.
    labels = ability == "labels"
    return Recognised(
        what=name,
        ask=(lambda x: ask(x).argmax(1)) if labels else ask,
        print=told,
        gives="labels" if labels else None,
        with_pull=with_pull if ability == "gradients" else None,
    )
