"""What kind of thing somebody hands in as a model, told by where its type comes from and what its code uses.

Nothing is imported and nothing is called for it: a question to a model costs whoever pays for the answers.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any

from torch import nn

from sigmazero.models.any import estimators

Root = str
# The libraries whose things in a function's code tell what it takes, the more telling ones first.
_TELLING = ("torch", "jax", "tensorflow", "keras", "numpy", "sklearn", "xgboost", "lightgbm", "onnxruntime", "pandas")
_TAKES = {"torch": "torch", "jax": "jax", "tensorflow": "tensorflow", "keras": "tensorflow"}
_DEPTH = 3  # calls that are followed
OWNERS = ("xgboost", "lightgbm", "onnxruntime", "keras", "sklearn", "jax", "jaxlib", "tensorflow")


def roots(thing: Any) -> list[Root]:
    """The packages that the classes of a thing come from, its own first."""
    found = [kind.__module__.partition(".")[0] for kind in type(thing).__mro__]
    return list(dict.fromkeys(found))


def owner(thing: Any) -> Root | None:
    """The library whose kind of model it is, as far as its type tells; "estimator" for what is built like one."""
    if isinstance(thing, nn.Module):
        return "torch"
    found = next((root for root in roots(thing) if root in OWNERS), None)
    if found is None and estimators.like_sklearn(thing) and not callable(thing):
        return "sklearn"
    return "jax" if found == "jaxlib" else found


def takes(function: Callable[..., Any]) -> str | None:
    """What a function of Python takes, "numpy", "jax", "tensorflow" or "torch"; None where its code does not tell.

    >>> import numpy as np, torch
    >>> takes(lambda x: np.tanh(x)), takes(lambda x: torch.tanh(x)), takes(lambda x: x)
    ('numpy', 'torch', None)
    """
    found = _told_by(function, _DEPTH)
    first = next((root for root in _TELLING if root in found), None)
    return None if first is None else _TAKES.get(first, "numpy")


def _told_by(function: Any, depth: int) -> set[Root]:
    """The libraries whose things a function uses, itself or through functions that it calls."""
    values = list(_used(function))
    found = {root for value in values for root in _roots_of(value)}
    called = [value for value in values if isinstance(value, FunctionType) and not found & set(_TELLING)]
    return found.union(*(_told_by(value, depth - 1) for value in called if depth and value is not function))


def _used(function: Any) -> Iterator[Any]:
    """What the code of a function gets at: what it is annotated with, names it reads, values it closes over."""
    while isinstance(function, functools.partial | MethodType):
        if isinstance(function, MethodType):
            yield from (function.__self__, *getattr(function.__self__, "__dict__", {}).values())
            function = function.__func__
        else:
            yield from (*function.args, *function.keywords.values())
            function = function.func
    function = inspect.unwrap(function)
    if not isinstance(function, FunctionType):
        yield from vars(function).values() if hasattr(function, "__dict__") else ()
        function = vars(type(function)).get("__call__")
        if not isinstance(function, FunctionType):
            return
    yield from function.__annotations__.values()
    names = dict(function.__globals__) | _closed_over(function)
    yield from (names[name] for name in (*function.__code__.co_names, *function.__code__.co_freevars) if name in names)


def _closed_over(function: FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells if cell != type(cell)()}


def _roots_of(value: Any) -> list[Root]:
    if isinstance(value, ModuleType):
        return [value.__name__.partition(".")[0]]
    if isinstance(value, str):  # an annotation that was not evaluated, "np.ndarray"
        return ["numpy"] if value.endswith("ndarray") else ["torch"] if value.endswith("Tensor") else []
    own = [(getattr(value, "__module__", None) or "").partition(".")[0]] if callable(value) else []
    return [*own, *roots(value)]
