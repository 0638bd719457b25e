"""Read TOML key by key: an error names the wrong value, its line and what is allowed.

The standard library's reader does not say in which line a key stands; `Lines` finds out.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from sigmazero.core.inputs import hint
from sigmazero.core.text import one_line

KeyPath = tuple[str | int, ...]

LENGTH = 4 << 20  # characters of a plan
SEARCHED = 4 << 20  # characters read in search of a line
LONG = 1 << 18  # characters that are not read again for the sake of a line
DEEPEST = 8
ENDLESS = re.compile(r"\S{200,}")  # a name that no one reads to its end
# A name in a name in a name: the standard reader's time grows with the square of their number.
NESTED = re.compile(r"""(?<![\w"'-])(?:[\w"'-]+[ \t]*\.[ \t]*){50}""")


class Lines:
    """Line numbers of the tables and keys of a TOML text, found by reading ever longer beginnings of it.

    >>> lines = Lines("name = 'a'\\n[[grid]]\\n[[grid]]\\nsteps = 3")
    >>> lines.of("name"), lines.of("grid", 1, "steps"), lines.of("grid", 1, "unknown")
    (1, 4, 3)
    """

    def __init__(self, text: str) -> None:
        self._lines = text.replace("\r\n", "\n").split("\n")

    @cached_property
    def _found(self) -> dict[KeyPath, int]:
        """The line in which each key first appears; worked out only when there is an error to report."""
        found: dict[KeyPath, int] = {}
        start, left = 1, SEARCHED
        for end in range(1, len(self._lines) + 1):
            text = "\n".join(self._lines[:end])
            left -= len(text)
            if left < 0 or len(text) > LONG:
                break  # a plan so long is worth an error at once, in its last line that is known
            try:
                values = tomllib.loads(text)
            except (ValueError, RecursionError):
                continue  # in the middle of a value that takes several lines
            for path in _paths(values):
                found.setdefault(path, start)
            start = end + 1
        return found

    def of(self, *path: str | int) -> int:
        """The line of a key, or of the nearest thing around it that has a line; 1 if nothing does."""
        while path and path not in self._found:
            path = path[:-1]
        return self._found.get(path, 1)


def _paths(value: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    """The paths of all keys in a value; tables in a list are numbered."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        if (isinstance(value, dict) or isinstance(item, dict | list)) and len(path) < DEEPEST:
            yield from _paths(item, (*path, key))


class PlanError(ValueError):
    """A plan with a mistake; the message begins with the file and the line."""


def read_toml(text: str, file: str) -> dict[str, Any]:
    """The values of a TOML text; `file` is what errors call it."""
    try:
        if NESTED.search(text):
            raise RecursionError
        return tomllib.loads(text)
    except RecursionError:
        raise PlanError(f"{file}: not a plan: lists or tables are nested too deep") from None
    except ValueError as error:  # TOMLDecodeError, and what Python says about numbers of thousands of digits
        raise PlanError(f"{file}: not TOML: {one_line(error)}") from None


class TomlTable:
    """A TOML table that knows where it stands in which file."""

    def __init__(self, values: Mapping[str, Any], file: str, lines: Lines, path: KeyPath = ()) -> None:
        self.values, self.file, self.lines, self.path = values, file, lines, path

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def error(self, message: str, *key: str | int) -> PlanError:
        """An error at the line of a key of this table."""
        told = ENDLESS.sub(lambda found: f"{found[0][:100]}...", message)
        return PlanError(f"{self.file}:{self.lines.of(*self.path, *key)}: {told}")

    def only(self, allowed: Iterable[str]) -> None:
        """Refuse keys that mean nothing here."""
        known = list(allowed)
        for key in self.values:
            if key not in known:
                raise self.error(f"unknown key {brief(key)}; {hint(brief(key)[1:-1], known)}", key)

    def below(self, key: str) -> TomlTable:
        """A table inside this one; empty if it is not there."""
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self.error(f"{key} must be a table, written [{key}.NAME]", key)
        return TomlTable(value, self.file, self.lines, (*self.path, key))

    def each(self, key: str) -> list[TomlTable]:
        """The tables of an array of tables."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(f"{key} must be one or more tables, each written [[{key}]]", key)
        return [TomlTable(item, self.file, self.lines, (*self.path, key, i)) for i, item in enumerate(value)]

    def text(self, key: str) -> str | None:
        """A text, None if absent."""
        value = self.values.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            raise self.error(f"{key} = {brief(value)} must be a text in quotes", key)
        return value

    def flag(self, key: str) -> bool:
        """True or false; false if absent."""
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            raise self.error(f"{key} = {brief(value)} must be true or false", key)
        return value

    def choice(self, key: str, allowed: Iterable[str]) -> str | None:
        """One of the allowed texts, None if absent."""
        value, known = self.text(key), list(allowed)
        if value is not None and value not in known:
            raise self.error(f"{key} = {brief(value)} is not allowed; {hint(value, known)}", key)
        return value

    def whole(self, key: str, least: int) -> int | None:
        """A whole number that is not below `least`; None if absent."""
        value = self.values.get(key)
        if value is not None and (not _is_whole(value) or value < least):
            raise self.error(f"{key} = {brief(value)} must be a whole number, {least} or more", key)
        return value

    def number(self, key: str, least: float) -> float | None:
        """A finite number that is not below `least`; None if absent."""
        value = self.values.get(key)
        known = _is_whole(value) or isinstance(value, float)
        if value is not None and not (known and least <= value < math.inf):
            raise self.error(f"{key} = {brief(value)} must be a finite number, {least:g} or more", key)
        return None if value is None else float(value)

    def wholes(self, key: str, least: int) -> list[int] | None:
        """A list of different whole numbers, none below `least`; None if absent."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not value or not all(_is_whole(v) and v >= least for v in value):
            raise self.error(
                f"{key} = {brief(value)} must be a list of whole numbers, {least} or more, such as [10, 24]", key
            )
        self._distinct(key, value)
        return value

    def texts(self, key: str) -> list[str] | None:
        """A list of different texts, None if absent; a single one may stand without brackets."""
        value = self.values.get(key)
        if value is None:
            return None
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not listed or not all(isinstance(v, str) and v for v in listed):
            raise self.error(f"{key} = {brief(value)} must be a list of names in quotes", key)
        self._distinct(key, listed)
        return listed

    def _distinct(self, key: str, values: list[Any]) -> None:
        seen: set[Any] = set()
        for value in values:
            if value in seen:
                raise self.error(f"{key} names {brief(value)} twice; name it once", key)
            seen.add(value)


def brief(value: object) -> str:
    """A value as a plan has it, cut where it is long.

    >>> brief("fmn"), brief(list(range(1000)))
    ("'fmn'", '[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...]')
    """
    if isinstance(value, list) and len(value) > 10:
        return f"[{', '.join(map(brief, value[:10]))}, ...]"
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a whole number of thousands of digits; a list in a list in a list
        return f"a very long {type(value).__name__}"
    return text if len(text) <= 100 else f"{text[:100]}..."


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
