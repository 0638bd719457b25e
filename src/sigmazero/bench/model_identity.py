"""What, besides its weights, decides what a model computes: a change of it makes another model."""

import hashlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sigmazero import models
from sigmazero.bench.identity import (
    digest,
    hash_file,
    hash_tensors,
    is_torch,
    known_code,
    patches,
    this_process,
    without_addresses,
)
from sigmazero.bench.plan import ModelSpec

PROGRAMS = (torch.fx.GraphModule, torch.jit.ScriptModule)  # modules that hold their code themselves
SIMPLE = (bool, int, float, complex, str, bytes, type(None), torch.dtype)


def describe_code(spec: ModelSpec, network: nn.Module) -> dict[str, Any]:
    """For a model of the zoo its architecture, for an exported program or an ONNX file that file.

    For one built by code the file of that code, and what `describe_layers` tells of the network.
    """
    entry = models.find(spec.spec)
    if entry is not None:
        return {
            "architecture": entry.architecture,
            "options": dict(entry.options),
            "mean": entry.mean,
            "std": entry.std,
        }
    place, _, function = spec.spec.rpartition(":")
    if not place:
        return {"file": hash_file(Path(spec.spec)), "normalize": spec.normalize}
    source = place
    if not place.endswith(".py"):
        found = importlib.util.find_spec(place)
        source = found.origin if found is not None and found.origin is not None else place
    built = {"file": hash_file(Path(source)), "function": function, "normalize": spec.normalize}
    return {**built, **describe_layers(network)}


def describe_module(network: nn.Module) -> dict[str, Any]:
    """For a module handed in its class, and what `describe_layers` tells of it."""
    layers = describe_layers(network)
    known = layers["code"] and not any(this_process() in one for one in layers["code"])
    if not network.state_dict() and not list(network.children()) and not known:
        raise ValueError(
            f"the model {type(network).__name__} has neither weights nor layers nor code to recognise it by; name it "
            'as "file.py:build", so that the file can be its identity'
        )
    return {"class": f"{type(network).__module__}.{type(network).__qualname__}", **layers}


def describe_layers(network: nn.Module) -> dict[str, Any]:
    """The layers that a network shows, the code of those that are not torch's, and values that it would not save."""
    saved = network.state_dict().keys()
    values = {f"buffer {name}": _value(held) for name, held in network.named_buffers() if name not in saved}
    for name, module in network.named_modules():
        values |= {f"{name}.{attribute}": held for attribute, held in _values(module).items()}
    return {
        "shown": hashlib.sha256(without_addresses(repr(network)).encode()).hexdigest(),
        "code": sorted({known_code(thing) for module in network.modules() for thing in _code(module)}),
        "values": digest(values) if values else None,
    }


def _code(module: nn.Module) -> Iterator[type | Callable[..., Any]]:
    """The code that runs in a module itself: its class, if it is not torch's, and functions put on it."""
    if isinstance(module, PROGRAMS):
        return
    if not is_torch(type(module).__module__):
        yield type(module)
    yield from patches(type(module))
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    for value in [*vars(module).values(), *hooks]:
        function = value.__func__ if isinstance(value, MethodType) else value
        if isinstance(function, FunctionType) and not is_torch(function.__module__):
            yield function


def _values(module: nn.Module) -> dict[str, str]:
    """Plain values that a module which is not torch's keeps in its attributes; of a program its text."""
    if isinstance(module, PROGRAMS):
        return {"code": str(getattr(module, "code", None))}
    if is_torch(type(module).__module__):
        return {}
    held = {name: _value(value) for name, value in vars(module).items() if name != "training"}
    return {name: value for name, value in held.items() if value is not None}


def _value(value: Any) -> str | None:
    """A plain value, or a tensor, as text; None for anything else."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        value = torch.from_numpy(np.ascontiguousarray(value))
    if isinstance(value, Tensor):
        return hash_tensors({"": value})
    if isinstance(value, SIMPLE):
        return repr(value)
    items = list(value.items()) if isinstance(value, dict) else value if isinstance(value, list | tuple) else []
    parts = [_value(item) for item in items]
    return None if not parts or None in parts else f"{type(value).__name__} {parts}"
