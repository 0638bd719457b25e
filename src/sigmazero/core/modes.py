"""Put a model in eval mode while it is asked: `eval()` and `train()` may do more than set a flag."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def in_eval_mode(model: object) -> Iterator[None]:
    """Ask a model in eval mode; then every module has its own mode again.

    A layer may merge its weights in `eval()` and part them in `train()`. A model without a module in training mode is
    left alone.
    """
    modules = _parents_first(model) if isinstance(model, nn.Module) else []
    modes = {module: module.training for module in modules if hasattr(module, "training")}  # frozen scripts have none
    try:
        if any(modes.values()):
            _switch(modules[0], False)
        yield
    finally:
        for module, mode in modes.items():
            if module.training != mode:
                _switch(module, mode)


def _switch(module: nn.Module, mode: bool) -> None:
    """Call `train(mode)`; exported programs refuse that call, so theirs are set by hand."""
    try:
        module.train(mode)
    except NotImplementedError:
        module.training = mode
        for part in module.children():
            _switch(part, mode)


def _parents_first(model: nn.Module) -> list[nn.Module]:
    """Return every module once, after all modules that it is a part of: a parent's `train()` sets its parts too."""
    found: dict[nn.Module, None] = {}

    def visit(module: nn.Module) -> None:
        if module not in found:
            for part in module.children():
                visit(part)
            found[module] = None

    visit(model)
    return [*reversed(found)]
