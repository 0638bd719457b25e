"""Writes small ONNX files, so that reading them is tested without the packages that make them."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

TYPES = {"float32": 1, "int64": 7, "float16": 10, "float64": 11}


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: bytes | str | int | float) -> bytes:
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor(name: str, values: Any) -> bytes:
    array = np.asarray(values)
    dims = b"".join(field(1, int(size)) for size in array.shape)
    return dims + field(2, TYPES[str(array.dtype)]) + field(8, name) + field(9, array.tobytes())


def setting(name: str, value: Any) -> bytes:
    start = field(1, name)
    if isinstance(value, np.ndarray):
        return start + field(5, tensor("", value)) + field(20, 4)
    if isinstance(value, list):
        return start + b"".join(field(8, each) for each in value) + field(20, 7)
    if isinstance(value, str):
        return start + field(4, value) + field(20, 3)
    return start + field(2 if isinstance(value, float) else 3, value) + field(20, 1 if isinstance(value, float) else 2)


def node(kind: str, inputs: Sequence[str], output: str, **settings: Any) -> bytes:
    parts = [field(1, name) for name in inputs] + [field(2, output), field(4, kind)]
    return b"".join(parts + [field(5, setting(name, value)) for name, value in settings.items()])


def shaped(name: str, shape: Sequence[int | None]) -> bytes:
    dims = b"".join(field(1, field(2, "n") if size is None else field(1, size)) for size in shape)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))


def model(
    nodes: Sequence[bytes],
    constants: Mapping[str, Any],
    shape: Sequence[int | None],
    version: int = 13,
    output: str = "y",
) -> bytes:
    """A file with the input x and one output."""
    graph = b"".join(field(1, each) for each in nodes) + field(2, "g")
    graph += b"".join(field(5, tensor(name, value)) for name, value in constants.items())
    graph += field(11, shaped("x", shape)) + field(12, shaped(output, (None, None)))
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, version))


def linear(weight: Any, bias: Any) -> bytes:
    """A file with one layer."""
    return model([node("Gemm", ["x", "w", "b"], "y", transB=1)], {"w": weight, "b": bias}, (None, len(weight[0])))


def written(folder: Path, content: bytes) -> Path:
    """The file m.onnx."""
    (folder / "m.onnx").write_bytes(content)
    return folder / "m.onnx"
