"""Networks that other packages define, imported only when asked for."""

import sys

from torch import Tensor, nn

from sigmazero.core.extras import require


def timm(name: str) -> nn.Module:
    """Build a network of timm's registry with random weights (I4, I8)."""
    model: nn.Module = require("timm", "timm", f"the network {name!r}").create_model(name, pretrained=False)
    return model


def robustbench(name: str) -> nn.Module:
    """Build one of RobustBench's robust-architecture networks with random weights (I7)."""
    module = "robustbench.model_zoo.architectures.robustarch_wide_resnet"
    model: nn.Module = require(module, "robustbench", f"the network {name!r}").get_model(name)
    return model


def convert(model: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Bring a checkpoint of an older timm to the names of the installed one, by timm's own filter."""
    filters = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    return dict(filters(state, model)) if filters else state
