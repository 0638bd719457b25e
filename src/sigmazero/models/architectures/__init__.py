"""The networks of the paper and the bundled ones, written so that each state dict has exactly the published entries."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from sigmazero.models.architectures import external
from sigmazero.models.architectures.blocks import BasicBlock, Bottleneck, PreActBottleneck
from sigmazero.models.architectures.preact_resnet import PreActResNet18
from sigmazero.models.architectures.resnet import ChenEnsemble, ResNet, no_parameters
from sigmazero.models.architectures.small import DemoCNN, SmallCNN, TableMLP
from sigmazero.models.architectures.wide_resnet import DMWideResNet, WideResNet

ARCHITECTURES: dict[str, Callable[..., nn.Module]] = {
    "smallcnn": SmallCNN,
    "preact-resnet18": PreActResNet18,
    "resnet18-cifar": partial(ResNet, BasicBlock, (2, 2, 2, 2)),
    "resnet50-cifar": partial(ResNet, Bottleneck, (3, 4, 6, 3)),
    "resnet50-cifar-chen": partial(ResNet, PreActBottleneck, (3, 4, 6, 3)),
    "chen-ensemble": ChenEnsemble,
    "wide-resnet": WideResNet,
    "dm-wide-resnet": DMWideResNet,
    "resnet20": partial(ResNet, BasicBlock, (3, 3, 3), widths=(16, 32, 64), shortcut=no_parameters),
    "demo-cnn": DemoCNN,
    "table-mlp": TableMLP,
    "resnet18-imagenet": partial(ResNet, BasicBlock, (2, 2, 2, 2), classes=1000, imagenet=True),
    "resnet50-imagenet": partial(ResNet, Bottleneck, (3, 4, 6, 3), classes=1000, imagenet=True),
    "timm": external.timm,
    "robustbench": external.robustbench,
}


def build(name: str, /, **options: Any) -> nn.Module:
    """Build a network with random weights by its architecture's name.

    >>> sum(p.numel() for p in build("smallcnn").parameters())
    312202
    """
    if name not in ARCHITECTURES:
        raise ValueError(f"unknown architecture {name!r}; known: {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name](**options)


__all__ = ["ARCHITECTURES", "build"]
