"""PreActResNet-18 (C3, C4, C11, C12 with softplus blocks; our own robust CIFAR network with ReLU)."""

import torch.nn.functional as F
from torch import Tensor, nn

from sigmazero.models.architectures.blocks import ACTIVATIONS, Names, PreActBlock, conv, pool

NAMES = Names("bn1", "conv1", "bn2", "conv2", "shortcut", wrapped=True)


class PreActResNet18(nn.Module):
    """Two pre-activation blocks in each of four stages; ``act`` names the activation inside the blocks.

    The activation before the pooling is ReLU whatever the blocks use.
    """

    def __init__(self, act: str = "relu") -> None:
        super().__init__()
        self.conv1 = conv(3, 64, 3)
        self.layer1 = _stage(64, 64, 1, act)
        self.layer2 = _stage(64, 128, 2, act)
        self.layer3 = _stage(128, 256, 2, act)
        self.layer4 = _stage(256, 512, 2, act)
        self.bn = nn.BatchNorm2d(512)
        self.linear = nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits."""
        x = self.layer4(self.layer3(self.layer2(self.layer1(self.conv1(x)))))
        logits: Tensor = self.linear(pool(F.relu(self.bn(x))))
        return logits


def _stage(inputs: int, outputs: int, stride: int, act: str) -> nn.Sequential:
    function = ACTIVATIONS[act]
    return nn.Sequential(
        PreActBlock(inputs, outputs, stride, function, NAMES),
        PreActBlock(outputs, outputs, 1, function, NAMES),
    )
