"""Read TOML files that people write: every error names the file, the line and the value.

The tables of a file are pydantic models (or dataclasses); `parse` checks a text against one. Checks that need more than
the tables raise `error(...)` with the path of the key, so that they name a line too.
"""

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, TypeAdapter
from pydantic import ValidationError as Invalid

from sigmazero.core.inputs import hint
from sigmazero.core.messages import one_line

Kind = TypeVar("Kind")
KeyPath = tuple[str | int, ...]
UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")  # errors about keys that no table has
MAX_SHOWN = 100  # characters of a value in a message
# Strings over several lines and comments, which may look like keys; other strings are matched to be stepped over.
_TEXTS = re.compile(
    r"""(\"{3}(?:\\.|[^\\])*?\"{3}|'{3}.*?'{3})|("(?:\\.|[^"\\\n])*"|'[^'\n]*')|(\#[^\n]*)""", re.DOTALL | re.VERBOSE
)
_PART = re.compile(r"""[\w-]+|"(?:\\.|[^"\\])*"|'[^']*'""")
_NAME = rf"(?:{_PART.pattern})(?:\s*\.\s*(?:{_PART.pattern}))*"
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_NAME})\s*\]\]?\s*$")
_KEY = re.compile(rf"\s*({_NAME})\s*=")


class TomlError(ValueError):
    """A file with a mistake; the message begins with the file and the line."""


class Table(BaseModel):
    """A table of a file: unknown keys are mistakes, and true is no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _distinct(values: list[Any]) -> list[Any]:
    if twice := [value for place, value in enumerate(values) if value in values[:place]]:
        raise ValueError(f"{twice[0]!r} twice; name it once")
    return values


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Text = Annotated[str, StringConstraints(min_length=1)]
Whole = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Wholes = Annotated[list[Whole], Field(min_length=1), AfterValidator(_distinct)]
# Names in quotes; a single one may stand without brackets.
Names = Annotated[list[Text], Field(min_length=1), BeforeValidator(_listed), AfterValidator(_distinct)]


def read(path: str | Path) -> str:
    """Return the text of a file in UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as problem:
        raise TomlError(f"{path}: not text in UTF-8 ({problem.reason} at byte {problem.start}); save it so") from None


def load(text: str, file: str) -> dict[str, Any]:
    """Return the values of a TOML text; `file` is its name in errors."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise TomlError(f"{file}: not TOML: lists or tables are nested too deep") from None
    except ValueError as problem:  # a TOMLDecodeError, or a number of thousands of digits
        message = one_line(problem)
        place = re.search(r" \(at line (\d+), column \d+\)$", message)
        line = f":{place[1]}" if place else ""
        raise TomlError(f"{file}{line}: not TOML: {message[: place.start()] if place else message}") from None


def parse(text: str, kind: type[Kind], file: str) -> Kind:
    """Check a TOML text against a table and return it; the first mistake raises a `TomlError`."""
    return check(load(text, file), kind, text, file)


def check(values: Any, kind: type[Kind], text: str, file: str, *prefix: str | int) -> Kind:
    """Check values that stand at the path `prefix` of a text against a table."""
    try:
        return TypeAdapter(kind).validate_python(values)
    except Invalid as invalid:
        found = invalid.errors(include_url=False)
        first = next((each for each in found if each["type"] in UNKNOWN), found[0])
        path = _written(tuple(first["loc"]), values)
        raise error(text, file, _message(first, path, kind), *prefix, *path) from None


def error(text: str, file: str, message: str, *path: str | int) -> TomlError:
    """Return an error at the line of a key."""
    return TomlError(f"{file}:{line_of(text, path)}: {message}")


def line_of(text: str, path: KeyPath) -> int:
    """Return the line of a key, or of the nearest table around it.

    >>> line_of("name = 'a'\\n[[grid]]\\n[[grid]]\\nsteps = 3", ("grid", 1, "steps"))
    4
    """
    found = _lines(text)
    while path not in found:
        path = path[:-1]
    return found[path]


def _lines(text: str) -> dict[KeyPath, int]:
    """Return the line in which each key first stands."""
    bare = _TEXTS.sub(lambda m: m[2] or re.sub(r"[^\n]", " ", m[0]), text.replace("\r\n", "\n"))
    found: dict[KeyPath, int] = {(): 1}
    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    depth = 0  # of brackets: inside a value that takes several lines
    for number, line in enumerate(bare.split("\n"), 1):
        if not depth and (header := _HEADER.match(line)):
            table = _numbered(_parts(header[2]), counts, header[1] == "[[")
            for end in range(1, len(table) + 1):
                found.setdefault(table[:end], number)
            continue
        if not depth and (key := _KEY.match(line)):
            parts = _parts(key[1])
            for end in range(1, len(parts) + 1):
                found.setdefault((*table, *parts[:end]), number)
        rest = _TEXTS.sub("", line)
        depth += sum(rest.count(mark) for mark in "[{") - sum(rest.count(mark) for mark in "]}")
    return found


def _parts(name: str) -> KeyPath:
    return tuple(part.strip("\"'") for part in _PART.findall(name))


def _numbered(names: KeyPath, counts: dict[KeyPath, int], one_of_several: bool) -> KeyPath:
    """Return the path of a table; an array of tables has a number after its name."""
    path: KeyPath = ()
    for place, name in enumerate(names, 1):
        path = (*path, name)
        if one_of_several and place == len(names):
            counts[path] = counts.get(path, -1) + 1
        path = (*path, counts[path]) if path in counts else path
    return path


def _written(path: KeyPath, values: Any) -> KeyPath:
    """Return the part of an error's path that stands in the file: pydantic adds the names of the kinds it tried."""
    found: KeyPath = ()
    for place, part in enumerate(path):
        inside = isinstance(values, dict) and part in values
        inside = inside or (isinstance(values, list) and isinstance(part, int) and part < len(values))
        if inside:
            values = values[part]
            found = (*found, part)
        elif place == len(path) - 1 and isinstance(part, str) and isinstance(values, dict):
            found = (*found, part)  # a key that is missing
    return found


def _message(first: Any, path: KeyPath, kind: Any) -> str:
    words = str(first["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    name = str(path[-1]) if path else ""
    if first["type"] in UNKNOWN:
        return f"unknown key {brief(name)}; {hint(name[:MAX_SHOWN], _known_keys(kind, path))}"
    if first["type"] == "missing":
        return f"{name} is missing; write {name} = ..."
    if path and isinstance(path[-1], int):
        name = ".".join(map(str, path[-2:]))
    shown = first["input"]
    return (
        f"{name} = {brief(shown)}: {words[:1].lower()}{words[1:]}"
        if path and not isinstance(shown, dict)
        else (f"{name}: {words[:1].lower()}{words[1:]}" if name and first["type"] != "value_error" else words)
    )


def _known_keys(kind: Any, path: KeyPath) -> list[str]:
    """Return the keys of the table that holds an unknown one."""
    for part in path[:-1]:
        fields = _fields(kind)
        if isinstance(part, str) and part in fields:
            kind = fields[part]
    return list(_fields(kind))


def _fields(kind: Any) -> dict[str, Any]:
    """Return the fields of the table in an annotation, by name."""
    if hasattr(kind, "model_fields"):
        return {name: each.annotation for name, each in kind.model_fields.items()}
    if hasattr(kind, "__dataclass_fields__"):
        return dict(kind.__annotations__)
    return next((found for each in getattr(kind, "__args__", ()) if (found := _fields(each))), {})


def brief(value: object) -> str:
    """Return a value as text, cut where it is long.

    >>> brief("fmn"), brief(list(range(1000)))
    ("'fmn'", '[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...]')
    """
    if isinstance(value, list) and len(value) > 10:
        return f"[{', '.join(map(brief, value[:10]))}, ...]"
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
