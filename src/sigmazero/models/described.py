"""What the pickle of a checkpoint describes, with inert stand-ins for every name: nothing runs, nothing is allocated.

The pickle holds no values. It says which tensors there are, of which shape, and where in the file their numbers lie.
"""

import io
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from sigmazero.core.pickles import look_through

KINDS = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
    "ComplexFloat": torch.complex64,
    "ComplexDouble": torch.complex128,
    "Untyped": torch.uint8,
    "QInt8": torch.int8,
    "QInt32": torch.int32,
    "QUInt8": torch.uint8,
    "QUInt4x2": torch.uint8,
    "QUInt2x4": torch.uint8,
}


class Refused(Exception):
    """The file asks for a Python object that no state dict needs."""


class Damaged(ValueError):
    """The file contradicts itself."""


@dataclass(frozen=True)
class Storage:
    """Numbers in the file: the name of the place, their type and how many."""

    key: str
    kind: torch.dtype
    count: int

    @property
    def bytes(self) -> int:
        """How many bytes they take."""
        return self.count * self.kind.itemsize


@dataclass(frozen=True)
class Described:
    """A tensor that is described but not made yet. `flaw` says why it is no weight, if it is none."""

    storage: Storage | None = None
    offset: int = 0
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    kind: torch.dtype = torch.float32
    flaw: str = ""

    @property
    def values(self) -> int:
        """How many values it has once it is made; it may repeat those of its storage."""
        return math.prod(self.shape)

    @property
    def reach(self) -> int:
        """How many values its storage must have."""
        last = sum((n - 1) * step for n, step in zip(self.shape, self.stride, strict=True))
        return self.offset + last + 1 if self.values else 0


class Contents(dict[Any, Any]):
    """A dictionary of a checkpoint, closed to the instruction that sets attributes."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        pass


class _Name:
    """A name that the pickle mentions. Calling it describes what the real one would have made."""

    __slots__ = ("_name", "_reader")

    def __init__(self, name: str, reader: "_Reader") -> None:
        self._name, self._reader = name, reader

    def __call__(self, *given: Any) -> Any:
        if self._name in ("collections.OrderedDict", "collections.Counter"):
            return self._reader.dictionary(*given)
        short = self._name.removeprefix("torch._utils.").removeprefix("torch._tensor.")
        return _MAKERS.get(short, _inert)(*given)

    def __setstate__(self, state: object) -> None:
        raise Refused(self._name)

    def kind(self) -> torch.dtype:
        """The type that it names: torch.float32, or that of torch.FloatStorage."""
        word = self._name.rpartition(".")[2]
        found = KINDS.get(word.removesuffix("Storage")) if word.endswith("Storage") else vars(torch).get(word)
        if not isinstance(found, torch.dtype):
            raise Damaged(f"{self._name} is no type of numbers")
        return found


class _Inert:
    """Stands for something that is not a tensor: an option, a device, a text."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        pass


def _inert(*_: object) -> _Inert:
    return _Inert()


def _dense(storage: Any, offset: Any, shape: Any, stride: Any, *rest: Any) -> Described:
    if not isinstance(storage, Storage) or not all(map(_numbers, ((offset,), shape, stride))):
        raise Damaged("a tensor in it has no proper storage, shape or strides")
    if len(shape) != len(stride):
        raise Damaged(f"a tensor of {len(shape)} dimensions has {len(stride)} strides")
    kind = next((each.kind() for each in rest if isinstance(each, _Name)), storage.kind)
    flaw = "is a negated or conjugated view; save weight.clone()" if any(type(each) is dict for each in rest) else ""
    return Described(storage, offset, tuple(shape), tuple(stride), kind, flaw)


def _numbers(values: object) -> bool:
    return isinstance(values, tuple | list) and all(type(v) is int and 0 <= v < 1 << 62 for v in values)


def _typed(function: Any, _: object, given: Any, *rest: object) -> Any:
    """A tensor of a subclass, or with attributes: the tensor alone."""
    return function(*given) if isinstance(function, _Name) else _Inert()


def _flawed(flaw: str) -> Callable[..., Described]:
    return lambda *_: Described(flaw=flaw)


_MAKERS: dict[str, Callable[..., Any]] = {
    "_rebuild_tensor": _dense,
    "_rebuild_tensor_v2": _dense,
    "_rebuild_tensor_v3": _dense,
    "_rebuild_parameter": lambda data, *_: data,
    "_rebuild_parameter_with_state": lambda data, *_: data,
    "_rebuild_device_tensor_from_cpu_tensor": lambda data, *_: data,
    "_rebuild_from_type_v2": _typed,
    "_rebuild_sparse_tensor": _flawed("is sparse; save weight.to_dense()"),
    "_rebuild_meta_tensor_no_storage": _flawed("is a meta tensor without values; save a model whose weights are made"),
    "_rebuild_qtensor": _flawed("is quantised; save the model as it was before quantisation"),
    "_rebuild_nested_tensor": _flawed("is a nested tensor; save plain tensors"),
    "_rebuild_wrapper_subclass": _flawed("is a tensor of a special class; save plain tensors"),
}
_INNOCENT = {
    *("collections.OrderedDict", "collections.Counter", "_codecs.encode", "torch.nn.parameter.Parameter"),
    *(f"{module}.{name}" for module in ("builtins", "__builtin__") for name in ("set", "bytearray", "complex")),
    *("torch.serialization._get_layout", "torch.storage.UntypedStorage", "torch.storage.TypedStorage"),
    *("torch._tensor._rebuild_from_type_v2", "torch.Size", "torch.device"),
}


class _Reader(pickle.Unpickler):
    """Reads one pickle; `storages` are those it mentioned."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")
        self.storages: dict[str, Storage] = {}
        self._left = len(data)

    def find_class(self, module: str, name: str) -> _Name:
        """The stand-in for a name, or a refusal."""
        full = f"{module}.{name}"
        tensors = module == "torch._utils" and name.startswith("_rebuild_")
        kinds = module == "torch" and (name.endswith("Storage") or isinstance(vars(torch).get(name), torch.dtype))
        if not (tensors or kinds or full in _INNOCENT or full.startswith("torch.per_")):
            raise Refused(full)
        return _Name(full, self)

    def persistent_load(self, pid: Any) -> Storage:
        """The storage that an entry of the pickle stands for."""
        match pid:
            case ("storage", _Name() as name, str(key), str(), int(count), *view) if count >= 0 and not any(view):
                found = Storage(key, name.kind(), count)
                if self.storages.setdefault(key, found) != found:
                    raise Damaged(f"storage {key!r} is described in two ways")
                return found
        raise Damaged("a storage in it is not described as torch does it")

    def dictionary(self, pairs: Any = ()) -> Contents:
        """A dictionary from pairs, which Python 2 wrote; each pair in the file may be used once."""
        self._left -= len(pairs)
        if self._left < 0:
            raise Damaged("it repeats its entries")
        return Contents(pairs)


def unpickle(data: bytes, start: int = 0) -> tuple[Any, dict[str, Storage], int]:
    """What the pickle at this place describes, the storages that it mentions, and where it ends."""
    end = look_through(data, start)
    reader = _Reader(data[start:end])
    return reader.load(), reader.storages, end
