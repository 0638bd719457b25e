"""What tells one foreign model from another: a hash of everything it holds, the same in every process."""

import functools
import hashlib
import io
import pickle
import secrets
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor, nn

from sigmazero.core.source import code_hash

_HERE = secrets.token_hex(8)  # what cannot be told apart otherwise is known in this process alone
_CODE = (ModuleType, FunctionType, BuiltinFunctionType, type)


class _Plain(pickle.Pickler):
    """Writes an object so that equal ones give equal bytes.

    Without a memo, so that it does not matter which equal parts are one; and arrays field by field, since the gaps
    between the fields of a record hold whatever was in memory.
    """

    def __init__(self, file: Any) -> None:
        super().__init__(file, protocol=4)
        self.fast = True

    def reducer_override(self, obj: Any) -> Any:
        """Arrays and networks as their values; everything else as it is."""
        if isinstance(obj, nn.Module):
            return tuple, ((repr(obj), *obj.state_dict().items()),)
        if isinstance(obj, Tensor):
            obj = obj.detach().cpu().numpy()
        if not isinstance(obj, np.ndarray) or obj.dtype.hasobject:
            return NotImplemented
        names = obj.dtype.names
        parts = [obj.tobytes()] if names is None else [np.ascontiguousarray(obj[name]).tobytes() for name in names]
        return tuple, ((str(obj.dtype), obj.shape, *parts),)


def of_object(thing: Any) -> str:
    """SHA-256 of an object that can be pickled; of another one nothing can be said that holds elsewhere."""
    buffer = io.BytesIO()
    try:
        _Plain(buffer).dump(thing)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError, ValueError):
        return _only_here(thing)
    return hashlib.sha256(buffer.getvalue()).hexdigest()


def of_bytes(content: bytes) -> str:
    """SHA-256 of a model that writes itself."""
    return hashlib.sha256(content).hexdigest()


def of_function(function: Callable[..., Any]) -> str:
    """The code of a function, or of the class of what is called, and the values that it can see."""
    if isinstance(function, functools.partial):
        return f"{of_function(function.func)} {of_object((function.args, sorted(function.keywords.items())))}"
    inner = getattr(function, "__func__", function)
    code = code_hash(inner if isinstance(inner, FunctionType) else type(inner))
    held = _values(inner) if isinstance(inner, FunctionType) else [inner]
    owner = getattr(function, "__self__", None)
    return f"{_name(inner)} {code} {of_object([*held, owner])}"


def _values(function: FunctionType) -> list[Any]:
    """What a function closes over and the globals it names, but for code, which `code_hash` follows."""
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    named = [function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__]
    return [value for value in (*cells, *named) if not isinstance(value, _CODE)]


def _only_here(thing: Any) -> str:
    return f"{_name(thing)} of process {_HERE}, {id(thing)}"


def _name(thing: Any) -> str:
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"
