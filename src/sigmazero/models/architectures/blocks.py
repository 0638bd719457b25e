"""Residual blocks shared by the networks; each published spelling of a name is an argument, not a copy."""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

Activation = Callable[[Tensor], Tensor]

ACTIVATIONS: dict[str, Activation] = {
    "relu": F.relu,
    "silu": F.silu,
    "swish": F.silu,  # the same function: x * sigmoid(x)
    "softplus": F.softplus,  # beta = 1
}


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """Convolution without bias that keeps the size (up to the stride)."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


def pool(x: Tensor) -> Tensor:
    """Global average pooling to one vector per sample."""
    return F.adaptive_avg_pool2d(x, 1).flatten(1)


Shortcut = Callable[
    [int, int, int], nn.Module
]  # (inputs, outputs, stride): how a block carries its input past a change of shape


def projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    """1x1 convolution and batch norm where the shape changes, nothing elsewhere (option B)."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class Padding(nn.Module):
    """Subsample by the stride and pad the channels with zeros on both sides (option A, no parameters)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride, self.extra = stride, outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        """Carry the input over."""
        before = self.extra // 2
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.extra - before))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions; ``name`` is the attribute of the shortcut in the published state dict."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, shortcut: Shortcut, name: str) -> None:
        super().__init__()
        self.conv1 = conv(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.add_module(name, shortcut(inputs, width, stride))
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.get_submodule(self.name)(x))


class Bottleneck(nn.Module):
    """1x1, 3x3 (carries the stride), 1x1 convolutions, four times as wide at the end."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, shortcut: Shortcut, name: str) -> None:
        super().__init__()
        self.conv1 = conv(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = conv(width, 4 * width, 1)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.add_module(name, shortcut(inputs, 4 * width, stride))
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.get_submodule(self.name)(x))


class PreActBottleneck(nn.Module):
    """The bottleneck of C8: normalised and activated before the convolutions, no activation after the sum.

    The projection sees the activated input, the plain skip the raw one.
    """

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, shortcut: Shortcut, name: str) -> None:
        super().__init__()
        self.bn0 = nn.BatchNorm2d(inputs)
        self.conv1 = conv(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = conv(width, 4 * width, 1)
        self.add_module(name, shortcut(inputs, 4 * width, stride))
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        start = F.relu(self.bn0(x))
        y = F.relu(self.bn1(self.conv1(start)))
        y = self.conv3(F.relu(self.bn2(self.conv2(y))))
        skip = self.get_submodule(self.name)
        out: Tensor = y + (x if isinstance(skip, nn.Identity) else skip(start))
        return out


class Names(NamedTuple):
    """Names of the parts of a pre-activation block in one family of checkpoints."""

    norm1: str
    conv1: str
    norm2: str
    conv2: str
    shortcut: str
    wrapped: bool  # whether the shortcut's convolution sits in a sequence ("shortcut.0")


class PreActBlock(nn.Module):
    """Pre-activation block of two 3x3 convolutions; a projecting shortcut sees the activated input.

    ``lopsided`` pads a strided 3x3 convolution on the right and at the bottom only, as TensorFlow's
    "SAME" does: networks ported from there lose accuracy with symmetric padding.
    """

    def __init__(
        self, inputs: int, outputs: int, stride: int, act: Activation, names: Names, *, lopsided: bool = False
    ) -> None:
        super().__init__()
        self.act, self.names = act, names
        self.pad = lopsided and stride > 1
        first = conv(inputs, outputs, 3, stride)
        if self.pad:
            first = nn.Conv2d(inputs, outputs, 3, stride, padding=0, bias=False)
        self.add_module(names.norm1, nn.BatchNorm2d(inputs))
        self.add_module(names.conv1, first)
        self.add_module(names.norm2, nn.BatchNorm2d(outputs))
        self.add_module(names.conv2, conv(outputs, outputs, 3))
        self.projects = stride != 1 or inputs != outputs
        if self.projects:
            skip = conv(inputs, outputs, 1, stride)
            self.add_module(names.shortcut, nn.Sequential(skip) if names.wrapped else skip)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        part = self.get_submodule
        start = self.act(part(self.names.norm1)(x))
        skip = part(self.names.shortcut)(start) if self.projects else x
        y = part(self.names.conv1)(F.pad(start, (0, 1, 0, 1)) if self.pad else start)
        y = part(self.names.conv2)(self.act(part(self.names.norm2)(y)))
        out: Tensor = y + skip
        return out


def stage(name: str, blocks: list[nn.Module]) -> nn.Sequential:
    """Blocks in a sequence inside a named member, as wide residual networks spell their groups."""
    return nn.Sequential(OrderedDict([(name, nn.Sequential(*blocks))]))
