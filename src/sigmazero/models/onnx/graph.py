"""What an ONNX file says: a list of operators with their inputs, outputs and constants."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sigmazero.core.messages import shown
from sigmazero.models.onnx import wire

KINDS: dict[int, Any] = {
    1: np.float32,
    2: np.uint8,
    3: np.int8,
    6: np.int32,
    7: np.int64,
    9: np.bool_,
    10: np.float16,
    11: np.float64,
}


@dataclass(frozen=True)
class GraphStep:
    """One operator: its name, what it reads and writes ("" for what is left out), and its settings."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    settings: dict[str, Any]


@dataclass(frozen=True)
class Program:
    """A whole network: steps in order, constants by name, the name of the input with its shape, and of the output."""

    steps: tuple[GraphStep, ...]
    constants: dict[str, Tensor]
    source: str
    shape: tuple[int | None, ...]
    result: str
    version: int


def read(content: bytes) -> Program:
    """The network in the bytes of a file."""
    model = wire.collected(content)
    versions = [wire.collected(each) for each in wire.messages(model.get(8, []))]
    version = max([wire.number(each.get(2, [])) for each in versions if not wire.text(each.get(1, []))], default=0)
    if not 7 <= version <= 64:
        raise wire.Malformed(f"its operators are of version {version}; 7 and later are read")
    if model.get(25):
        raise wire.Malformed("it defines functions of its own, which are not read")
    (graph,) = _one(model.get(7, []), "network")
    tensors = [_tensor(each) for each in wire.messages(graph.get(5, []))]
    constants = dict(tensors)
    if graph.get(15):
        raise wire.Malformed("it has sparse constants, which are not read")
    steps = tuple(_step(each) for each in wire.messages(graph.get(1, [])))
    given = [_input(each) for each in wire.messages(graph.get(11, []))]
    given = [(name, shape) for name, shape in given if name not in constants]
    if len(given) != 1:
        raise wire.Malformed(f"it has {len(given)} inputs besides its constants; one is expected")
    outputs = [wire.text(wire.collected(each).get(1, [])) for each in wire.messages(graph.get(12, []))]
    if not outputs:
        raise wire.Malformed("it has no output")
    return Program(steps, constants, *given[0], _scores(outputs), version)


def _scores(outputs: list[str]) -> str:
    """The output that holds scores: one called logits, or the first."""
    return next((name for name in outputs if name.lower() == "logits"), outputs[0])


def _one(values: list[wire.Value], what: str) -> list[dict[int, list[wire.Value]]]:
    if len(values) != 1:
        raise wire.Malformed(f"it holds {len(values)} descriptions of a {what}; one is expected")
    return [wire.collected(wire.messages(values)[0])]


def _step(data: bytes) -> GraphStep:
    found = wire.collected(data)
    domain, kind = wire.text(found.get(7, [])), wire.text(found.get(4, []))
    inputs, outputs = (tuple(wire.text([name]) for name in found.get(k, [])) for k in (1, 2))
    settings = dict(_setting(each) for each in wire.messages(found.get(5, [])))
    return GraphStep(f"{domain}.{kind}" if domain not in ("", "ai.onnx") else kind, inputs, outputs, settings)


def _setting(data: bytes) -> tuple[str, Any]:
    """Name and value of an operator's setting; what kind of value it is stands beside it, or shows."""
    found = wire.collected(data)
    name = wire.text(found.get(1, []))
    kind = wire.number(found.get(20, [])) or next((k for k in (1, 2, 3, 4) if found.get(k + 1)), 0)
    if kind == 1:
        return name, wire.floats(found.get(2, []))[-1] if found.get(2) else 0.0
    if kind == 2:
        return name, wire.number(found.get(3, []))
    if kind == 3:
        return name, wire.text(found.get(4, []))
    if kind == 4:
        return name, _tensor(wire.messages(found.get(5, []))[-1])[1] if found.get(5) else None
    if kind == 6:
        return name, wire.floats(found.get(7, []))
    if kind == 7:
        return name, wire.integers(found.get(8, []))
    return name, None


def _input(data: bytes) -> tuple[str, tuple[int | None, ...]]:
    """Name and shape of an input; None for a size that is left open."""
    found = wire.collected(data)
    name = wire.text(found.get(1, []))
    for number in (2, 1, 2):  # its type, which is a tensor's, which has a shape
        inner = wire.messages(found.get(number, []))
        found = wire.collected(inner[-1]) if inner else {}
    sizes = [wire.collected(each) for each in wire.messages(found.get(1, []))]
    return name, tuple(wire.number(each[1]) if each.get(1) else None for each in sizes)


def _tensor(data: bytes) -> tuple[str, Tensor]:
    """Name and values of a constant, which must all be in the file."""
    found = wire.collected(data)
    name, code = wire.text(found.get(8, [])), wire.number(found.get(2, []))
    if found.get(13) or wire.number(found.get(14, [])):
        raise wire.Malformed(f"the values of {shown(name)} lie in another file, which is not read")
    if code not in KINDS:
        raise wire.Malformed(f"the constant {shown(name)} is of type {code}, which is not read")
    shape = wire.integers(found.get(1, []))
    if any(size < 0 for size in shape):
        raise wire.Malformed(f"the constant {shown(name)} has shape {shape}")
    values = _values(found, np.dtype(KINDS[code]))
    if math.prod(shape) != len(values):
        raise wire.Malformed(f"the constant {shown(name)} has shape {shape} and {len(values)} values")
    return name, torch.from_numpy(values.reshape(shape))


def _values(found: dict[int, list[wire.Value]], kind: Any) -> Any:
    """The values of a constant: as the bytes of all of them, or number by number in the field of their type."""
    if raw := wire.messages(found.get(9, [])):
        if len(raw[-1]) % kind.itemsize:
            raise wire.Malformed(f"{len(raw[-1])} bytes are no whole number of values of type {kind}")
        return np.frombuffer(raw[-1], dtype=kind.newbyteorder("<")).astype(kind)
    if kind == np.float32:
        return np.array(wire.floats(found.get(4, [])), dtype=kind)
    if kind == np.float64:
        return np.array(wire.floats(found.get(10, []), "d"), dtype=kind)
    numbers = wire.integers(found.get(7 if kind == np.int64 else 5, []))
    if kind == np.float16:  # its bits, as a whole number
        return np.array([n & 0xFFFF for n in numbers], dtype=np.uint16).view(np.float16)
    return np.array(numbers, dtype=np.int64).astype(kind)
