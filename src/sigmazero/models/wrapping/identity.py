"""Identify a model in every process, as its weights identify a network."""

import hashlib
import inspect
import pickle
import secrets
from functools import partial
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from torch import Tensor, nn

from sigmazero.core.extras import require
from sigmazero.core.source import code_hash

_HERE = secrets.token_hex(8)  # of this process
_CODE = (ModuleType, FunctionType, BuiltinFunctionType, type, type(None))


class KnownModel(nn.Module):
    """A module that is known by a text instead of weights, which its state dict holds."""

    _print: str | None = None

    def content(self) -> str:
        """Return a text that is another one where the model is another one."""
        raise NotImplementedError

    def get_extra_state(self) -> str:
        """Return the text."""
        if self._print is None:
            self._print = self.content()
        return self._print

    def set_extra_state(self, state: object) -> None:
        """Refuse the state of another model: this one cannot be filled with weights."""
        if state != self.get_extra_state():
            raise ValueError(f"{self} is not the model that was saved; load that one")


def hash_object(thing: Any) -> str:
    """Return a hash of all that an object holds; an object without a pickle gets an id of this process.

    The round trip makes equal parts one object, as they are after loading.
    """
    try:
        copied = pickle.loads(pickle.dumps(thing, protocol=4))
        return str(require("joblib", "data", "the hash of a model").hash(copied, hash_name="sha1"))
    except Exception:  # whatever the code of an object makes of being pickled
        return f"{type(thing).__module__}.{type(thing).__qualname__} of process {_HERE}, {id(thing)}"


def hash_model(model: Any) -> str:
    """Return a hash of a network's layers and weights, or of a function's code and the values that it can see."""
    if isinstance(model, nn.Module):
        return hash_object(_plain(model))
    inner = model.func if isinstance(model, partial) else inspect.unwrap(model)
    seen: list[Any] = [getattr(inner, "__self__", None)]
    inner = getattr(inner, "__func__", inner)
    if isinstance(inner, FunctionType):
        seen += inspect.getclosurevars(inner).nonlocals.values()
        seen += [inner.__globals__[name] for name in inner.__code__.co_names if name in inner.__globals__]
    elif not isinstance(inner, BuiltinFunctionType):
        seen.append(inner)
    hashes = [hash_object(_plain(value)) for value in seen if not isinstance(value, _CODE)]
    return hashlib.sha256(f"{code_hash(model)} {hashes}".encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Return a network as its weights, and anything else as it is."""
    if not isinstance(value, nn.Module):
        return value
    return repr(value), [(k, v.cpu().numpy() if isinstance(v, Tensor) else v) for k, v in value.state_dict().items()]
