"""Channels of images: attacks have them in dimension 1, and some models take them last."""

from typing import Any, Literal

from torch import Tensor, nn

from sigmazero.core.model import logits_in

Order = Literal["NCHW", "NHWC"]
_CHANNELS = (1, 3, 4)  # grey, colour, colour with transparency


def looks_last(shape: tuple[int, ...]) -> bool:
    """Whether the last dimension of images looks like channels, and the second does not.

    >>> looks_last((8, 32, 32, 3)), looks_last((8, 3, 32, 32)), looks_last((8, 1, 28, 1)), looks_last((8, 64))
    (True, False, False, False)
    """
    return len(shape) == 4 and shape[-1] in _CHANNELS and shape[1] not in _CHANNELS


class ChannelsLast(nn.Module):
    """A model that takes images with the channels last, asked with the channels first."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.ability = getattr(model, "ability", "gradients")

    def forward(self, x: Tensor) -> Tensor:
        """Turn, and ask."""
        return logits_in(self.model(x.movedim(1, -1)))
