"""Batch norms folded into the layers before them: in eval mode both together are one layer with other weights.

To see which norm follows which layer, and whether something else uses the layer's output, the model is run once and
the graph that autograd makes is read. So control flow, checks of shapes and custom functions do not matter.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from sigmazero.core.model import ask

NORMS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: nn.BatchNorm1d,
    nn.Conv2d: nn.BatchNorm2d,
    nn.Conv3d: nn.BatchNorm3d,
    nn.Linear: nn.BatchNorm1d,
}


def fold(model: nn.Module, x: Tensor) -> int:
    """Fold what can be folded, in place, and return the number of norms; `x` is an input to run the model with."""
    pairs = list(_pairs(model, x))
    names = {module: name for name, module in model.named_modules()}
    for layer, norm in pairs:
        fuse: Callable[[Any, Any], nn.Module] = fuse_linear_bn_eval if type(layer) is nn.Linear else fuse_conv_bn_eval
        _put(model, names[layer], fuse(layer, norm).requires_grad_(False))
        _put(model, names[norm], nn.Identity())
    return len(pairs)


def _pairs(model: nn.Module, x: Tensor) -> Iterator[tuple[nn.Module, Any]]:
    """Yield layers whose output goes to a norm and nowhere else, both called once and known by one name."""
    # By address, with how often they were written to; the tensors are held, so that no address comes twice.
    outputs: dict[int, tuple[nn.Module, Any, int]] = {}
    calls: Counter[nn.Module] = Counter()
    found: list[tuple[nn.Module, nn.Module, Any]] = []

    def leave(layer: nn.Module, _: Any, out: Any) -> None:
        calls[layer] += 1
        outputs[id(out)] = layer, out, out._version

    def enter(norm: nn.Module, inputs: tuple[Any, ...]) -> None:
        calls[norm] += 1
        layer, out, version = outputs.get(id(inputs[0]), (norm, None, 0))
        # A norm of vectors takes the last dimension of a linear layer for features only where there is no other.
        if out is None or type(norm) is not NORMS[type(layer)] or (type(layer) is nn.Linear and out.ndim != 2):
            return
        if out._version == version:  # else something such as nn.ReLU(inplace=True) came between
            found.append((layer, norm, out.grad_fn))

    with ExitStack() as handles, torch.enable_grad():
        for module in model.modules():
            if type(module) in NORMS:
                handles.enter_context(module.register_forward_hook(leave))
            elif type(module) in NORMS.values():
                handles.enter_context(module.register_forward_pre_hook(enter))
        logits = ask(model, x.detach().clone().requires_grad_())
    uses = _uses(logits.grad_fn)
    places = Counter(module for _, module in model.named_modules(remove_duplicate=False))
    for layer, norm, node in found:
        alone = uses[node] == 1 and all(calls[m] == 1 and places[m] == 1 for m in (layer, norm))
        if alone and norm.running_mean is not None and not hasattr(layer, "parametrizations"):
            yield layer, norm


def _uses(last: Any) -> Counter[Any]:
    """Count how often each result of the graph is used to compute the last one."""
    uses: Counter[Any] = Counter()
    seen, waiting = {last}, [last]
    while waiting:
        for node, _ in waiting.pop().next_functions:
            if node is None:
                continue
            uses[node] += 1
            if node not in seen:
                seen.add(node)
                waiting.append(node)
    return uses


def _put(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, own = name.rpartition(".")
    setattr(model.get_submodule(parent), own, module)
