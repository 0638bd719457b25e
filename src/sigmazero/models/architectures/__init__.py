"""The networks of the paper and the bundled ones, written so that each state dict has exactly the published entries."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from sigmazero.core.extras import require
from sigmazero.models.architectures.blocks import BasicBlock, Bottleneck, PreActBottleneck
from sigmazero.models.architectures.preact_resnet import PreActResNet18
from sigmazero.models.architectures.resnet import ChenEnsemble, ResNet, no_parameters
from sigmazero.models.architectures.small import DemoCNN, SmallCNN, TableMLP
from sigmazero.models.architectures.wide_resnet import DMWideResNet, WideResNet


def _timm(name: str) -> nn.Module:
    """Build a network of timm's registry with random weights (I4, I8)."""
    model: nn.Module = require("timm", "timm", f"the network {name!r}").create_model(name, pretrained=False)
    return model


def _robustbench(name: str) -> nn.Module:
    """Build one of RobustBench's robust-architecture networks with random weights (I7)."""
    module = "robustbench.model_zoo.architectures.robustarch_wide_resnet"
    model: nn.Module = require(module, "robustbench", f"the network {name!r}").get_model(name)
    return model


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
    "timm": _timm,
    "robustbench": _robustbench,
}


def build(name: str, /, **options: Any) -> nn.Module:
    """Build a network with random weights by its architecture's name.

    >>> sum(p.numel() for p in build("smallcnn").parameters())
    312202
    """
    if name not in ARCHITECTURES:
        raise ValueError(f"unknown architecture {name!r}; known: {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name](**options)


def convert(model: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Bring a checkpoint of an older timm to the names of the installed one, by timm's own filter."""
    filters = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    return dict(filters(state, model)) if filters else state
