"""Read TOML files that people write: every error names the file, the line and the value.

The tables of a file are pydantic models (or dataclasses); `parse` checks a text against one. Checks that need more than
the tables raise `error(...)` with the path of the key, so that they name a line too.
"""

import re
import reprlib
import tomllib
from bisect import bisect_left
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
_shortened = reprlib.Repr()
_shortened.maxlist, _shortened.maxstring, _shortened.maxother = 10, MAX_SHOWN, MAX_SHOWN
brief = _shortened.repr  # a value as text, cut where it is long


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
        if first["type"] == "missing":
            path = (*path, first["loc"][-1])
        raise error(text, file, _message(first, path, kind), *prefix, *path) from None


def error(text: str, file: str, message: str, *path: str | int) -> TomlError:
    """Return an error at the line of a key."""
    return TomlError(f"{file}:{line_of(text, path)}: {message}")


def line_of(text: str, path: KeyPath) -> int:
    """Return the line of a key, or of the nearest table around it.

    >>> line_of("name = 'a'\\n[[grid]]\\n[[grid]]\\nsteps = 3", ("grid", 1, "steps"))
    4
    """
    lines = text.replace("\r\n", "\n").split("\n")
    ends = [0]  # of keys and headers, by lines: a value may take several
    for end in range(1, len(lines) + 1):
        try:
            tomllib.loads("\n".join(lines[ends[-1] : end]))
        except tomllib.TOMLDecodeError:
            continue
        ends.append(end)

    def has(keys: int) -> bool:
        return _written(path, tomllib.loads("\n".join(lines[: ends[keys]]))) == path

    while not has(len(ends) - 1):
        path = path[:-1]
    return ends[bisect_left(range(len(ends)), True, key=has) - 1] + 1 if path else 1


def _written(path: KeyPath, values: Any) -> KeyPath:
    """Return the part of an error's path that stands in the file: pydantic adds the names of the kinds it tried."""
    found: KeyPath = ()
    for part in path:
        table = isinstance(values, dict) and part in values
        if table or (isinstance(values, list) and isinstance(part, int) and part < len(values)):
            values, found = values[part], (*found, part)
    return found


def _message(first: Any, path: KeyPath, kind: Any) -> str:
    words = str(first["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    plain = f"{words[:1].lower()}{words[1:]}"
    item = bool(path) and isinstance(path[-1], int)
    name = ".".join(map(str, path[-2:] if item else path[-1:]))
    if first["type"] in UNKNOWN:
        return f"unknown key {brief(name)}; {hint(name[:MAX_SHOWN], _known_keys(kind, path))}"
    if first["type"] == "missing":
        return f"{name} is missing; write {name} = ..."
    if path and not isinstance(first["input"], dict):
        return f"{name} = {brief(first['input'])}: {plain}"
    return f"{name}: {plain}" if name and first["type"] != "value_error" else words


def _known_keys(kind: Any, path: KeyPath) -> list[str]:
    """Return the keys of the table that holds an unknown one."""
    for part in path[:-1]:
        kind = _fields(kind).get(part, kind)
    return list(_fields(kind))


def _fields(kind: Any) -> dict[Any, Any]:
    """Return the fields of the table in an annotation, by name."""
    if hasattr(kind, "model_fields"):
        return {name: each.annotation for name, each in kind.model_fields.items()}
    if hasattr(kind, "__dataclass_fields__"):
        return dict(kind.__annotations__)
    return next((found for each in getattr(kind, "__args__", ()) if (found := _fields(each))), {})
