"""In which dimension of an image its channels are: (N, C, H, W) inside, (N, H, W, C) at the door where that is said."""

from dataclasses import replace
from typing import Any, Literal, get_args

from torch import Tensor, nn

from sigmazero.core.outputs import logits_in
from sigmazero.core.result import Result

Order = Literal["NCHW", "NHWC"]
_CHANNELS = (1, 3, 4)  # grey, colour, colour with transparency


def check_layout(layout: Order | None, shape: tuple[int, ...]) -> None:
    """Refuse a layout that there is not, or that inputs of this shape cannot have."""
    if layout not in (None, *get_args(Order)):
        raise ValueError(f"layout={layout!r} is not one of {', '.join(map(repr, get_args(Order)))}")
    if layout == "NHWC" and len(shape) < 3:
        raise ValueError(f"layout='NHWC' is for images (N, H, W, C); the inputs have shape {shape}")


def looks_last(shape: tuple[int, ...]) -> bool:
    """Whether the last dimension of images looks like channels, and the second does not.

    >>> looks_last((8, 32, 32, 3)), looks_last((8, 3, 32, 32)), looks_last((8, 1, 28, 1)), looks_last((8, 64))
    (True, False, False, False)
    """
    return len(shape) == 4 and shape[-1] in _CHANNELS and shape[1] not in _CHANNELS


def channels_first(value: Any, samples: int) -> Any:
    """A tensor of images, or of one image without the batch, with the channels first; everything else as it is.

    `samples` is how many dimensions a batch of images has.
    """
    if not isinstance(value, Tensor) or value.ndim < samples - 1 or value.ndim == 0:
        return value
    return value.movedim(-1, 1 if value.ndim == samples else 0)


class ChannelsLast(nn.Module):
    """A model that takes images with the channels last, asked with the channels first."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.ability = getattr(model, "ability", "gradients")

    def forward(self, x: Tensor) -> Tensor:
        """Turn, and ask."""
        return logits_in(self.model(x.movedim(1, -1)))


def facing(model: Any, layout: Order | None) -> Any:
    """A model of this layout, asked with the channels first."""
    return ChannelsLast(model) if layout == "NHWC" else model


def turned_back(result: Result, layout: Order | None) -> Result:
    """A result in the layout of the inputs."""
    if layout != "NHWC":
        return result
    own = None if result.own is None else turned_back(result.own, layout)
    return replace(result, x_adv=result.x_adv.movedim(1, -1), own=own)
