"""The networks of the paper and the bundled ones, written so that each state dict has exactly the published entries."""

from collections.abc import Callable
from typing import Any

from torch import nn

from sigmazero.models.architectures import external
from sigmazero.models.architectures.preact_resnet import PreActResNet18
from sigmazero.models.architectures.resnet import (
    ChenEnsemble,
    resnet18_cifar,
    resnet18_imagenet,
    resnet20,
    resnet50_cifar,
    resnet50_cifar_chen,
    resnet50_imagenet,
)
from sigmazero.models.architectures.small import DemoCNN, SmallCNN, TableMLP
from sigmazero.models.architectures.wide_resnet import DMWideResNet, WideResNet

ARCHITECTURES: dict[str, Callable[..., nn.Module]] = {
    "smallcnn": SmallCNN,
    "preact-resnet18": PreActResNet18,
    "resnet18-cifar": resnet18_cifar,
    "resnet50-cifar": resnet50_cifar,
    "resnet50-cifar-chen": resnet50_cifar_chen,
    "chen-ensemble": ChenEnsemble,
    "wide-resnet": WideResNet,
    "dm-wide-resnet": DMWideResNet,
    "resnet20": resnet20,
    "demo-cnn": DemoCNN,
    "table-mlp": TableMLP,
    "resnet18-imagenet": resnet18_imagenet,
    "resnet50-imagenet": resnet50_imagenet,
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
