"""Know code by its content: the files it stands in, and what is loaded of it.

`source_files` finds the files behind classes and functions, with the files of the same project that these import.
`code_hash` describes a class or function as it is in memory, with the values that it can see: it needs no file, and
notices what was patched or set after loading. Neither looks into installed packages, torch or sigmazero.
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
_INSTALLED = tuple(Path(sysconfig.get_paths()[name]).resolve() for name in ("stdlib", "purelib", "platlib"))
_OURS = Path(__file__).resolve().parents[1]
MAX_DEPTH = 6  # of values inside values


def source_files(things: Iterable[Any]) -> list[Path]:
    """Return the files of the user's own code that define these classes and functions, and those they import.

    A path stands for the code in that file.
    """
    found: dict[Path, None] = {}
    waiting = [file for thing in things for file in _defining(thing)]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found[file] = None
            waiting += _imported(file)
    return sorted(found)


def hash_sources(things: Iterable[Any]) -> list[str]:
    """Return the SHA-256 of each of these files, without their names."""
    return sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in source_files(things))


def _defining(thing: Any) -> Iterator[Path]:
    if isinstance(thing, Path):
        yield from [thing.resolve()] if is_own(thing) else []
        return
    for part in inspect.getmro(thing) if isinstance(thing, type) else (inspect.unwrap(thing),):
        try:
            file = inspect.getsourcefile(part)
        except TypeError:  # builtin, or typed in at a prompt
            continue
        if file and is_own(Path(file)):
            yield Path(file).resolve()


def is_own(file: Path) -> bool:
    """Return whether a file is code of the user's project, and of no installed package."""
    place = file.resolve()
    outside = any(place.is_relative_to(folder) for folder in (*_INSTALLED, _OURS))
    return (
        place.suffix == ".py"
        and place.is_file()
        and not outside
        and not {"site-packages", "dist-packages"} & set(place.parts)
    )


def _imported(file: Path) -> Iterator[Path]:
    """Yield the files of the same project that a file imports, wherever in it the import stands."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # loaded before it was broken: the file itself counts all the same
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module_files(file, alias.name, 0)
        elif isinstance(node, ast.ImportFrom):
            yield from _module_files(file, node.module or "", node.level)
            for alias in node.names:  # a name that is imported may be a module itself
                yield from _module_files(file, f"{node.module or ''}.{alias.name}".strip("."), node.level)


def _module_files(file: Path, name: str, level: int) -> Iterator[Path]:
    """Yield the files of a module, its packages included: beside the importing file, as loaded, or as found."""
    parts = name.split(".")
    folders = [file.parents[level - 1]] if level else [file.parent]
    loaded = () if level else (sys.modules.get(parts[0]),)
    folders += [Path(each.__file__).parent for each in loaded if getattr(each, "__file__", None)]  # type: ignore[union-attr, arg-type]
    if not level and not any((folder / parts[0]).exists() for folder in folders) and parts[0] not in sys.modules:
        folders += [Path(entry or ".") for entry in sys.path]
    for folder in folders:
        base = folder.parent if folder.name == parts[0] and (folder / "__init__.py").is_file() else folder
        for end in range(1, len(parts) + 1):
            place = base.joinpath(*parts[:end])
            for candidate in (place.with_suffix(".py"), place / "__init__.py"):
                if is_own(candidate):
                    yield candidate.resolve()


def code_hash(thing: type | Callable[..., Any]) -> str:
    """Return the SHA-256 of a class or function in memory: its instructions, constants, and the values it can see.

    >>> code_hash(eval("lambda x: 2 * x")) == code_hash(eval("lambda y: 2 * y"))
    False
    """
    found = hashlib.sha256()
    for part in _described(thing, set(), 0, top=True):
        found.update(f"{part}\n".encode(errors="backslashreplace"))
    return found.hexdigest()


def _described(value: Any, seen: set[int], depth: int, top: bool = False) -> Iterator[str]:
    """Yield texts that tell one value from another; code of others and what is nested too deep by its name."""
    if isinstance(value, _PLAIN) or depth > MAX_DEPTH:
        yield f"{type(value).__qualname__} {value!r}" if isinstance(value, _PLAIN) else type(value).__qualname__
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Tensor | np.ndarray):
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        yield f"{array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    elif isinstance(value, type):
        yield from _class(value, seen, depth, top)
    elif isinstance(value, FunctionType | MethodType | functools.partial | ModuleType):
        yield from _callable(value, seen, depth, top)
    else:
        yield from _held(value, seen, depth)


def _held(value: Any, seen: set[int], depth: int) -> Iterator[str]:
    """Describe a container, or the attributes of an object."""
    yield type(value).__qualname__
    items: Iterable[Any] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = value
    elif isinstance(value, set | frozenset):
        items = sorted(value, key=repr)
    elif _theirs(type(value)) or is_dataclass(value):
        yield from _described(type(value), seen, depth + 1)
        items = sorted(getattr(value, "__dict__", {}).items())
    for item in items:
        yield from _described(item, seen, depth + 1)


def _class(kind: type, seen: set[int], depth: int, top: bool) -> Iterator[str]:
    yield f"class {kind.__module__}.{kind.__qualname__}"
    if not (top or _theirs(kind)):
        return
    for base in kind.__bases__:
        yield from _described(base, seen, depth)
    for name, value in sorted(vars(kind).items()):
        inner = getattr(value, "__func__", getattr(value, "fget", value))
        if not name.startswith("__") or isinstance(inner, FunctionType):
            yield name
            yield from _described(inner, seen, depth + 1)


def _callable(value: Any, seen: set[int], depth: int, top: bool) -> Iterator[str]:
    """Describe a function, a method, a partial; a module is known by its name here, its values where they are used."""
    if isinstance(value, ModuleType):
        yield f"module {value.__name__}"
        return
    if isinstance(value, functools.partial):
        for part in (value.func, value.args, value.keywords):
            yield from _described(part, seen, depth + 1)
        return
    if isinstance(value, MethodType):
        yield from _described(value.__func__, seen, depth)
        yield from _described(value.__self__, seen, depth + 1)
        return
    function = inspect.unwrap(value)
    yield f"function {function.__module__}.{function.__qualname__}"
    if not (top or _theirs(function)):
        return
    yield _instructions(function.__code__, function.__doc__)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    known = {name: _content(cell) for name, cell in cells}
    names = sorted(_names(function.__code__))
    known |= {name: function.__globals__[name] for name in names if name in function.__globals__}
    known |= {"": (function.__defaults__, function.__kwdefaults__)}
    for name, each in known.items():
        yield name
        if isinstance(each, ModuleType) and _theirs(each):
            for attribute in names:
                if hasattr(each, attribute):
                    yield from _described(getattr(each, attribute), seen, depth + 1)
        yield from _described(each, seen, depth + 1)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _names(code: CodeType) -> set[str]:
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _instructions(code: CodeType, doc: str | None = None) -> str:
    """Return a function's compiled code as text, without line numbers and its docstring."""
    consts = [
        _instructions(const) if isinstance(const, CodeType) else repr(const)
        for const in code.co_consts
        if doc is None or const != doc
    ]
    return f"{code.co_code.hex()} {consts} {code.co_names} {code.co_varnames} {code.co_freevars}"


def _theirs(thing: Any) -> bool:
    """Return whether code is the user's: neither installed, nor torch's, nor ours."""
    name = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None) or ""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names and top != "__main__":
        return False
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    return is_own(Path(file)) if file else top not in ("builtins", "torch", "numpy", "sigmazero")


def without_addresses(text: str) -> str:
    """Return a text without the memory addresses that Python shows for things without a better name."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def module_file(name: str) -> Path | None:
    """Return the file of a module by its name, without running it."""
    found = importlib.util.find_spec(name)
    return None if found is None or found.origin is None else Path(found.origin)
