"""A hash of code: it changes when the code changes, and not with its comments, docstrings or layout."""

import ast
import hashlib
import inspect
import linecache
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import Any

_SIMPLE = (bool, int, float, complex, str, bytes, type(None))
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_UNKNOWN = object()


def code_hash(thing: type | Callable[..., Any]) -> str | None:
    """SHA-256 of the source of a class or a function; None where the source cannot be had.

    It covers the qualified name, every base class outside torch and the standard library, and, as far as names lead
    to them, the functions, classes and plain constants of the same project that the code uses. It does not cover the
    values of tensors, nor what installed packages do. A file edited since it was loaded is no source.

    >>> code_hash(eval("lambda x: 2 * x")) is None  # there is no file to read
    True
    """
    thing = inspect.unwrap(thing)
    try:
        parts = [thing.__qualname__, *_parts(thing, set())]
    except (AttributeError, LookupError, OSError, SyntaxError, TypeError):  # what finding and parsing a source raise
        return None
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _parts(thing: Any, seen: set[int]) -> Iterator[str]:
    """Name and code of a class or a function, of its bases and of what these use, each once."""
    for one in inspect.getmro(thing) if isinstance(thing, type) else (thing,):
        if id(one) in seen or _foreign(one.__module__):
            continue
        seen.add(id(one))
        node = _definition(one)
        yield f"{one.__qualname__} {plain(node)}"
        known = _names(one)
        for name in _used(node):
            first, *rest = name.split(".")
            yield from _meaning(name, known.get(first, _UNKNOWN), rest, seen)


def _meaning(name: str, value: Any, rest: list[str], seen: set[int]) -> Iterator[str]:
    """What a name in the code stands for: code of the same project, or a plain constant."""
    while isinstance(value, ModuleType) and rest and _own(value.__name__):
        value = getattr(value, rest.pop(0), _UNKNOWN)
    if all(isinstance(v, _SIMPLE) for v in (value if isinstance(value, tuple) else (value,))):
        yield f"{name} = {value!r}"
    elif callable(value):
        value = inspect.unwrap(value)
        if isinstance(value, FunctionType | type) and _own(value.__module__):
            yield from _parts(value, seen)


def _names(thing: Any) -> dict[str, Any]:
    """The names that the code of a class or function can see, besides its own."""
    if isinstance(thing, type):
        return dict(vars(sys.modules[thing.__module__]))
    cells = zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True)
    return dict(thing.__globals__) | {name: cell.cell_contents for name, cell in cells}


def _used(node: ast.AST) -> list[str]:
    """The names read in a piece of code, dotted where attributes are read from them, in order and once."""
    found: dict[str, None] = {}
    for one in ast.walk(node):
        path: list[str] = []
        while isinstance(one, ast.Attribute):
            path.insert(0, one.attr)
            one = one.value
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load):
            found[".".join([one.id, *path])] = None
    return list(found)


def _definition(thing: Any) -> ast.AST:
    """The definition of a class or function in the file it stands in."""
    kinds: tuple[type[ast.AST], ...] = (ast.ClassDef,) if isinstance(thing, type) else _FUNCTIONS
    if isinstance(thing, type):
        lines, before = inspect.findsource(thing)
        first, functions = before + 1, list(vars(thing).values())
    else:
        file, first = thing.__code__.co_filename, thing.__code__.co_firstlineno
        linecache.checkcache(file)
        lines, functions = linecache.getlines(file, thing.__globals__), [thing]
    source = "".join(lines)
    loader = getattr(getattr(sys.modules.get(thing.__module__), "__spec__", None), "loader", None)
    if loader is None or type(loader) is SourceFileLoader:  # others may have loaded something else than the source
        codes = [f.__code__ for f in map(inspect.unwrap, functions) if isinstance(f, FunctionType)]
        mine = {code for code in codes if code.co_qualname.startswith(thing.__qualname__)}  # none that were generated
        if mine - _compiled(source):
            raise LookupError(f"the file of {thing.__qualname__} was edited since it was loaded")
    found = [
        node
        for node in ast.walk(_parsed(source))
        if isinstance(node, kinds)
        and first == min(n.lineno for n in (node, *getattr(node, "decorator_list", ())))
        and getattr(node, "name", "<lambda>") == thing.__name__
    ]
    if len(found) != 1:
        raise LookupError(f"{thing.__qualname__} cannot be told from others in its line")
    return found[0]


@lru_cache(maxsize=64)
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


@lru_cache(maxsize=64)
def _compiled(source: str) -> frozenset[CodeType]:
    """The code objects of all functions in a source."""
    found, waiting = set(), [compile(source, "", "exec", dont_inherit=True)]
    while waiting:
        found.add(one := waiting.pop())
        waiting += [constant for constant in one.co_consts if isinstance(constant, CodeType)]
    return frozenset(found)


def plain(node: Any) -> str:
    """A piece of code as text that no version of Python writes differently: no positions, empty fields, docstrings."""
    if isinstance(node, list):
        return f"[{' '.join(plain(one) for one in node if not _is_text(one))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = [f"{name}={plain(value)}" for name, value in ast.iter_fields(node) if value is not None and value != []]
    return f"{type(node).__name__}({' '.join(fields)})"


def _is_text(node: Any) -> bool:
    """Whether a statement is a string and nothing else: a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _foreign(module: str) -> bool:
    """Whether a module's code is not hashed at all: torch, the standard library, and the contract of attacks."""
    top = module.partition(".")[0]
    return top == "torch" or top in sys.stdlib_module_names or module == "sigmazero.core.attack"


def _own(module: str) -> bool:
    """Whether names are followed into a module: it is of the user's project, neither installed nor one of ours."""
    if _foreign(module) or module.partition(".")[0] == "sigmazero":
        return False
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return not {"site-packages", "dist-packages"} & set(file.replace("\\", "/").split("/"))
