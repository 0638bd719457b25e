"""Residual networks with the activation after the sum: CIFAR and ImageNet stems, and C8's ensemble."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sigmazero.models.architectures.blocks import (
    BasicBlock,
    Bottleneck,
    Padding,
    PreActBottleneck,
    Shortcut,
    conv,
    pool,
    projection,
)

Block = type[BasicBlock] | type[Bottleneck] | type[PreActBottleneck]


class ResNet(nn.Module):
    """Stem, stages ``layer1``, ``layer2``, ..., global pooling and a linear layer.

    ``imagenet`` selects the 7x7 stem with max-pooling and the spelling ``downsample``/``fc`` in place of
    ``shortcut``/``linear``. With ``mean`` and ``std`` the network normalises its input itself, by the
    buffers ``mu`` and ``sigma`` that some checkpoints carry.
    """

    mu: Tensor
    sigma: Tensor

    def __init__(
        self,
        block: Block,
        depths: Sequence[int],
        *,
        widths: Sequence[int] = (64, 128, 256, 512),
        classes: int = 10,
        imagenet: bool = False,
        shortcut: Shortcut = projection,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        channels = widths[0]
        self.conv1 = nn.Conv2d(3, channels, 7, 2, 3, bias=False) if imagenet else conv(3, channels, 3)
        self.bn1 = nn.BatchNorm2d(channels)
        self.stages = [f"layer{i + 1}" for i in range(len(depths))]
        name = "downsample" if imagenet else "shortcut"
        for i, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            blocks: list[nn.Module] = []
            for j in range(depth):
                stride = 2 if i > 0 and j == 0 else 1
                blocks.append(block(channels, width, stride, shortcut, name))
                channels = width * block.expansion
            self.add_module(self.stages[i], nn.Sequential(*blocks))
        self.head = "fc" if imagenet else "linear"
        self.add_module(self.head, nn.Linear(channels, classes))
        self.shrinks, self.normalizes = imagenet, mean is not None and std is not None
        if mean is not None and std is not None:
            self.register_buffer("mu", torch.tensor(tuple(mean)).view(1, -1, 1, 1))
            self.register_buffer("sigma", torch.tensor(tuple(std)).view(1, -1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits."""
        if self.normalizes:
            x = (x - self.mu) / self.sigma
        x = F.relu(self.bn1(self.conv1(x)))
        if self.shrinks:
            x = F.max_pool2d(x, 3, 2, 1)
        for name in self.stages:
            x = self.get_submodule(name)(x)
        logits: Tensor = self.get_submodule(self.head)(pool(x))
        return logits


def no_parameters(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Shortcut of ResNet-20: nothing where the shape stays, else `Padding`."""
    return nn.Identity() if stride == 1 and inputs == outputs else Padding(inputs, outputs, stride)


class ChenEnsemble(nn.Module):
    """C8: three networks whose class probabilities are averaged.

    The published code returns the averaged probabilities; this returns their logarithm. The prediction
    is the same, and losses written for logits keep useful gradients where probabilities saturate.
    """

    def __init__(self) -> None:
        super().__init__()
        self.branch1 = ResNet(PreActBottleneck, (3, 4, 6, 3))
        self.branch2 = ResNet(PreActBottleneck, (3, 4, 6, 3))
        self.branch3 = ResNet(PreActBottleneck, (3, 4, 6, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logarithm of the mean probability of each class."""
        branches = (self.branch1, self.branch2, self.branch3)
        log_p = torch.stack([F.log_softmax(branch(x), dim=1) for branch in branches])
        return torch.logsumexp(log_p, dim=0) - math.log(len(branches))
