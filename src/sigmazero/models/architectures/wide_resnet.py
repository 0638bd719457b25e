"""Wide residual networks in the two published spellings (C1, C5 and C6, C9)."""

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from sigmazero.models.architectures.blocks import ACTIVATIONS, Names, PreActBlock, conv, pool, stage
from sigmazero.models.normalize import KNOWN, Normalize

NAMES = Names("bn1", "conv1", "bn2", "conv2", "convShortcut", wrapped=False)
DM_NAMES = Names("batchnorm_0", "conv_0", "batchnorm_1", "conv_1", "shortcut", wrapped=False)


class WideResNet(nn.Module):
    """WideResNet with ReLU and no input normalisation.

    ``sub_block1`` adds a block group that takes no part in the computation: the checkpoint of C1 holds
    one, left over from its training code.
    """

    def __init__(self, depth: int = 28, width: int = 10, *, sub_block1: bool = False) -> None:
        super().__init__()
        blocks, channels = _shape(depth, width)
        self.conv1 = conv(3, channels[0], 3)
        self.block1 = _group(blocks, channels[0], channels[1], 1)
        if sub_block1:
            self.sub_block1 = _group(blocks, channels[0], channels[1], 1)
        self.block2 = _group(blocks, channels[1], channels[2], 2)
        self.block3 = _group(blocks, channels[2], channels[3], 2)
        self.bn1 = nn.BatchNorm2d(channels[3])
        self.fc = nn.Linear(channels[3], 10)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits."""
        x = self.block3(self.block2(self.block1(self.conv1(x))))
        logits: Tensor = self.fc(pool(F.relu(self.bn1(x))))
        return logits


class DMWideResNet(nn.Module):
    """WideResNet as ported from JAX: lopsided padding, smooth activation, its own input normalisation.

    The statistics are fixed and no part of the state dict, as in the published layout.
    """

    def __init__(self, depth: int = 28, width: int = 10, act: str = "silu") -> None:
        super().__init__()
        blocks, channels = _shape(depth, width)
        self.act = ACTIVATIONS[act]
        self.normalize = Normalize(*KNOWN["cifar10"])
        self.init_conv = conv(3, channels[0], 3)
        self.layer = nn.Sequential(
            *(
                stage("block", _blocks(blocks, inputs, outputs, 1 if i == 0 else 2, act, DM_NAMES, True))
                for i, (inputs, outputs) in enumerate(pairwise(channels))
            )
        )
        self.batchnorm = nn.BatchNorm2d(channels[3])
        self.logits = nn.Linear(channels[3], 10)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits."""
        x = self.layer(self.init_conv(self.normalize(x)))
        logits: Tensor = self.logits(pool(self.act(self.batchnorm(x))))
        return logits


def _shape(depth: int, width: int) -> tuple[int, tuple[int, int, int, int]]:
    return (depth - 4) // 6, (16, 16 * width, 32 * width, 64 * width)


def _group(count: int, inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return stage("layer", _blocks(count, inputs, outputs, stride, "relu", NAMES, False))


def _blocks(
    count: int, inputs: int, outputs: int, stride: int, act: str, names: Names, lopsided: bool
) -> list[nn.Module]:
    function = ACTIVATIONS[act]
    first = PreActBlock(inputs, outputs, stride, function, names, lopsided=lopsided)
    rest = (PreActBlock(outputs, outputs, 1, function, names) for _ in range(count - 1))
    return [first, *rest]
