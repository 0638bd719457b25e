"""Know code by its content: the files that define it, and what is loaded of it.

`source_files` finds the files behind classes and functions, with the files of the same project that these import.
`code_hash` describes a class or function as it is in memory, with the values that it can see. It needs no file, and
notices patches after loading. Neither looks into installed packages, torch or sigmazero.
"""

import ast
import functools
import hashlib
import importlib.util
import inspect
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_CONTAINERS = (dict, list, tuple, set, frozenset, functools.partial, MethodType)
_INSTALLED = tuple(Path(sysconfig.get_paths()[name]).resolve() for name in ("stdlib", "purelib", "platlib"))
_OURS = Path(__file__).resolve().parents[1]
MAX_DEPTH = 8  # of values inside values


def source_files(things: Iterable[Any]) -> list[Path]:
    """Return the files of the user's own code that define these classes and functions, and those they import.

    A path stands for the code in that file.
    """
    found: set[Path] = set()
    waiting = [file for thing in things for file in _defining(thing)]
    while waiting:
        file = waiting.pop().resolve()
        if file not in found and is_own(file):
            found.add(file)
            waiting += _imported(file)
    return sorted(found)


def hash_sources(things: Iterable[Any]) -> list[str]:
    """Return the SHA-256 of each of these files, without their names."""
    return sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in source_files(things))


def _defining(thing: Any) -> Iterator[Path]:
    """Yield the files that define a thing, and the bases of a class."""
    if isinstance(thing, Path):
        yield thing
        return
    for part in inspect.getmro(thing) if isinstance(thing, type) else (inspect.unwrap(thing),):
        try:
            file = inspect.getsourcefile(part)
        except TypeError:  # builtin, or typed in at a prompt
            file = None
        if file:
            yield Path(file)


def is_own(file: Path) -> bool:
    """Return whether a file is code of the user's project, and of no installed package."""
    place = file.resolve()
    outside = any(place.is_relative_to(folder) for folder in (*_INSTALLED, _OURS))
    installed = outside or bool({"site-packages", "dist-packages"} & set(place.parts))
    return place.suffix == ".py" and place.is_file() and not installed


def _imported(file: Path) -> Iterator[Path]:
    """Yield the files that may be what a file imports, anywhere in it."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # loaded before it was broken: the file itself counts all the same
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module_files(file, alias.name, 0)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:  # a name may be a module itself
                yield from _module_files(file, f"{node.module or ''}.{alias.name}".strip("."), node.level)


def _module_files(file: Path, name: str, level: int) -> Iterator[Path]:
    """Yield the files of a module and its packages: next to the importing file, as loaded, or as Python finds it."""
    first, *_ = parts = name.split(".")
    folders = [file.parents[max(level - 1, 0)]]
    if level == 0 and (loaded := getattr(sys.modules.get(first), "__file__", None)):
        folders.append(Path(loaded).parent)
    if level == 0 and first not in sys.modules and not (folders[0] / first).exists():
        folders += [Path(entry or ".") for entry in sys.path]
    for folder in folders:
        base = folder.parent if folder.name == first and (folder / "__init__.py").is_file() else folder
        for end in range(1, len(parts) + 1):
            place = base.joinpath(*parts[:end])
            yield from (place.with_suffix(".py"), place / "__init__.py")


def code_hash(thing: type | Callable[..., Any]) -> str:
    """Return the SHA-256 of a class or function in memory: its instructions, constants, and the values it can see.

    >>> code_hash(eval("lambda x: 2 * x")) == code_hash(eval("lambda y: 2 * y"))
    False
    """
    found = hashlib.sha256()
    seen: dict[int, Any] = {}  # the values too: a later value could have the same address

    def walk(value: Any, depth: int) -> None:
        if isinstance(value, _PLAIN):
            found.update(f"{type(value).__qualname__} {value!r}\n".encode(errors="backslashreplace"))
        elif id(value) not in seen and depth <= MAX_DEPTH:
            seen[id(value)] = value
            for part in _parts(value, top=depth == 0):
                walk(part, depth + 1)

    walk(thing, 0)
    return found.hexdigest()


def _parts(value: Any, top: bool) -> Iterator[Any]:
    """Yield texts that identify a value, and the values inside it; installed code is identified by its name."""
    kind = type(value)
    yield kind.__qualname__
    if isinstance(value, Tensor | np.ndarray):
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        yield f"{array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    elif isinstance(value, ModuleType):
        yield value.__name__
    elif isinstance(value, type):
        yield f"{value.__module__}.{value.__qualname__}"
        if top or _theirs(value):
            yield from _members(value)
    elif isinstance(value, FunctionType):
        function = inspect.unwrap(value)
        yield f"{function.__module__}.{function.__qualname__}"
        if top or _theirs(function):
            yield from _visible(function)
    elif isinstance(value, _CONTAINERS):
        yield from _items(value)
    else:
        yield kind
        if _theirs(kind) or is_dataclass(value):
            yield from sorted(getattr(value, "__dict__", {}).items())


def _items(value: Any) -> Iterable[Any]:
    """Return what a container holds, or what a call is made of."""
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, MethodType):
        return value.__func__, value.__self__
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    return value.items() if isinstance(value, dict) else value


def _members(kind: type) -> Iterator[Any]:
    """Yield the bases of a class, and its attributes with their names."""
    yield from kind.__bases__
    for name, value in sorted(vars(kind).items()):
        inner = getattr(value, "__func__", getattr(value, "fget", value))
        if not name.startswith("__") or isinstance(inner, FunctionType):
            yield from (name, inner)


def _visible(function: Any) -> Iterator[Any]:
    """Yield the instructions of a function, its defaults, and the values of its names."""
    code = function.__code__
    yield _instructions(code, function.__doc__)
    yield function.__defaults__, function.__kwdefaults__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        yield name
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    names = sorted(_names(code))
    for name in names:
        if name in function.__globals__:
            value = function.__globals__[name]
            yield from (name, value)
            if isinstance(value, ModuleType) and _theirs(value):
                yield from (getattr(value, attribute) for attribute in names if hasattr(value, attribute))


def _names(code: CodeType) -> set[str]:
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _instructions(code: Any, doc: str | None = None) -> str:
    """Return a function's compiled code, or a constant in it, as text: without line numbers and its docstring."""
    if isinstance(code, frozenset):  # whose order is another one in each process
        return f"set {sorted(map(repr, code))}"
    if not isinstance(code, CodeType):
        return repr(code)
    consts = [_instructions(const) for const in code.co_consts if doc is None or const != doc]
    return f"{code.co_code.hex()} {consts} {code.co_names} {code.co_varnames} {code.co_freevars}"


def _theirs(thing: Any) -> bool:
    """Return whether code is the user's: neither installed, nor torch's, nor ours."""
    name = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None) or ""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names and top != "__main__":
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    return is_own(Path(file)) if file else top not in ("builtins", "torch", "numpy", "sigmazero")


def without_addresses(text: str) -> str:
    """Return a text without the memory addresses in the default representation of objects."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def module_file(name: str) -> Path | None:
    """Return the file of a module by its name, without running it."""
    found = importlib.util.find_spec(name)
    return None if found is None or found.origin is None else Path(found.origin)
