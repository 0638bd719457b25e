"""Input normalisation, placed in front of a network so that attacks work in [0, 1]."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

Statistics = tuple[tuple[float, ...], tuple[float, ...]]

KNOWN: dict[str, Statistics] = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "mnist": ((0.1307,), (0.3081,)),
}

SYNTAX = (
    "write MEAN,STD with one number each (0.5,0.25) or one per channel separated by colons "
    f"(0.485:0.456:0.406,0.229:0.224:0.225), or one of {', '.join(KNOWN)}"
)


class Normalize(nn.Module):
    """(x - mean) / std for each channel (dimension 1). The statistics are no part of the state dict, as published.

    >>> Normalize([0.5], [0.25])(torch.ones(1, 1, 1, 1)).item()
    2.0
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        check_statistics(mean, std)
        self.register_buffer("mean", torch.tensor(tuple(mean)), persistent=False)
        self.register_buffer("std", torch.tensor(tuple(std)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise a batch."""
        channels = self.mean.numel()
        if channels > 1 and (x.ndim < 2 or x.shape[1] != channels):
            raise ValueError(f"normalisation has {channels} channels, the input has shape {tuple(x.shape)}")
        shape = (1, channels) + (1,) * (x.ndim - 2) if x.ndim > 1 else (channels,)
        return (x - self.mean.view(shape)) / self.std.view(shape)

    def extra_repr(self) -> str:
        """Show the statistics when printed."""
        if self.mean.is_meta:
            return f"channels={self.mean.numel()}"
        return f"mean={self.mean.tolist()}, std={self.std.tolist()}"


def check_statistics(mean: Sequence[float], std: Sequence[float]) -> None:
    """Refuse unequal lengths, no values at all, and deviations that are not positive."""
    if len(mean) != len(std) or not mean:
        raise ValueError(f"mean has {len(mean)} values and std {len(std)}; {SYNTAX}")
    if any(not value > 0 for value in std):
        raise ValueError(f"std must be positive, not {tuple(std)}; {SYNTAX}")


def parse_normalize(text: str) -> Statistics:
    """Read ``MEAN,STD``: scalars, colon-separated channels, or the name of a known data set.

    >>> parse_normalize("0.5:0.4:0.3,0.2:0.2:0.1")
    ((0.5, 0.4, 0.3), (0.2, 0.2, 0.1))
    """
    if text.strip().lower() in KNOWN:
        return KNOWN[text.strip().lower()]
    halves = text.split(",")
    if len(halves) != 2:
        raise ValueError(f"cannot read the normalisation {text!r}: {SYNTAX}")
    try:
        mean, std = (tuple(float(number) for number in half.split(":")) for half in halves)
    except ValueError:
        raise ValueError(f"cannot read the normalisation {text!r}: {SYNTAX}") from None
    check_statistics(mean, std)
    return mean, std
