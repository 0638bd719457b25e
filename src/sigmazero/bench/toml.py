"""TOML read key by key: every wrong value is named with its line and with what is allowed.

The standard library's reader does not say where in a text a key stands; `Lines` does.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

_WORD = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
_KEYS = rf"{_WORD}(?:\s*\.\s*{_WORD})*"
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_KEYS})\s*\]")
_ENTRY = re.compile(rf"\s*({_KEYS})\s*=(.*)", re.DOTALL)
_STRING = re.compile(r'"""|\'\'\'|"(?:[^"\\]|\\.)*"|\'[^\']*\'|#.*')
_BRACKETS = {"[": 1, "{": 1, "]": -1, "}": -1}

Path = tuple[str | int, ...]


class Lines:
    """Line numbers of the tables and keys of a TOML text.

    >>> lines = Lines("name = 'a'\\n[[grid]]\\n[[grid]]\\nsteps = 3")
    >>> lines.of("name"), lines.of("grid", 1, "steps"), lines.of("grid", 1, "unknown")
    (1, 4, 3)
    """

    def __init__(self, text: str) -> None:
        self._found: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}
        table: Path = ()
        depth, quote = 0, ""
        for number, line in enumerate(text.splitlines(), 1):
            value = line
            if not depth and not quote:
                if header := _HEADER.match(line):
                    table = self._header(header[1], _split(header[2]))
                    self._found.setdefault(table, number)
                    continue
                entry = _ENTRY.match(line)
                if not entry:
                    continue
                self._found.setdefault((*table, *_split(entry[1])), number)
                value = entry[2]
            depth, quote = _after(value, depth, quote)

    def _header(self, brackets: str, names: list[str]) -> Path:
        """The path of a header, with the number of each array of tables it lies in."""
        path: Path = ()
        for place, name in enumerate(names):
            path = (*path, name)
            if brackets == "[[" and place == len(names) - 1:
                self._counts[path] = self._counts.get(path, -1) + 1
            if path in self._counts:
                path = (*path, self._counts[path])
        return path

    def of(self, *path: str | int) -> int:
        """The line of a key, or of the nearest thing around it that has a line; 1 if nothing does."""
        while path and path not in self._found:
            path = path[:-1]
        return self._found.get(path, 1)


def _split(keys: str) -> list[str]:
    return [word.strip("\"'") for word in re.findall(_WORD, keys)]


def _after(text: str, depth: int, quote: str) -> tuple[int, str]:
    """How many brackets are open after a piece of a value, and which long string, if any."""
    while True:
        if quote:
            end = text.find(quote)
            if end < 0:
                return depth, quote
            text, quote = text[end + 3 :], ""
        match = _STRING.search(text)
        plain = text[: match.start()] if match else text
        depth += sum(_BRACKETS.get(character, 0) for character in plain)
        if match is None:
            return depth, ""
        if match[0] in ('"""', "'''"):
            quote = match[0]
        text = text[match.end() :]


class PlanError(ValueError):
    """A plan that cannot be meant; the message begins with the file and the line."""


class Table:
    """A TOML table that knows where it stands in which file."""

    def __init__(self, values: Mapping[str, Any], file: str, lines: Lines, path: tuple[str | int, ...] = ()) -> None:
        self.values, self.file, self.lines, self.path = values, file, lines, path

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def error(self, message: str, *key: str | int) -> PlanError:
        """An error at the line of a key of this table."""
        return PlanError(f"{self.file}:{self.lines.of(*self.path, *key)}: {message}")

    def only(self, allowed: Iterable[str]) -> None:
        """Refuse keys that mean nothing here."""
        known = list(allowed)
        for key in self.values:
            if key not in known:
                raise self.error(f"unknown key {key!r}; {hint(key, known)}", key)

    def below(self, key: str) -> Table:
        """A table inside this one; empty if it is not there."""
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self.error(f"{key} must be a table, written [{key}.NAME]", key)
        return Table(value, self.file, self.lines, (*self.path, key))

    def each(self, key: str) -> list[Table]:
        """The tables of an array of tables."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(f"{key} must be one or more tables, each written [[{key}]]", key)
        return [Table(item, self.file, self.lines, (*self.path, key, i)) for i, item in enumerate(value)]

    def text(self, key: str) -> str | None:
        """A text, None if absent."""
        value = self.values.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            raise self.error(f"{key} = {value!r} must be a text in quotes", key)
        return value

    def flag(self, key: str) -> bool:
        """Yes or no; no if absent."""
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            raise self.error(f"{key} = {value!r} must be true or false", key)
        return value

    def choice(self, key: str, allowed: Iterable[str]) -> str | None:
        """One of some texts."""
        value, known = self.text(key), list(allowed)
        if value is not None and value not in known:
            raise self.error(f"{key} = {value!r} is not allowed; {hint(value, known)}", key)
        return value

    def whole(self, key: str, least: int) -> int | None:
        """A whole number, at least so large."""
        value = self.values.get(key)
        if value is not None and (not _is_whole(value) or value < least):
            raise self.error(f"{key} = {value!r} must be a whole number, {least} or more", key)
        return value

    def wholes(self, key: str, least: int) -> list[int] | None:
        """Distinct whole numbers."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not value or not all(_is_whole(v) and v >= least for v in value):
            raise self.error(
                f"{key} = {value!r} must be a list of whole numbers, {least} or more, such as [10, 24]", key
            )
        self._distinct(key, value)
        return value

    def texts(self, key: str) -> list[str] | None:
        """Distinct texts; a single one may stand without brackets."""
        value = self.values.get(key)
        if value is None:
            return None
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not listed or not all(isinstance(v, str) and v for v in listed):
            raise self.error(f"{key} = {value!r} must be a list of names in quotes", key)
        self._distinct(key, listed)
        return listed

    def _distinct(self, key: str, values: list[Any]) -> None:
        twice = [v for i, v in enumerate(values) if v in values[:i]]
        if twice:
            raise self.error(f"{key} names {twice[0]!r} twice; name it once", key)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def hint(word: str, known: Iterable[str]) -> str:
    """The names near to a wrong one, or all there are.

    >>> hint("bugdets", ["budgets", "unit"]), hint("x", ["budgets", "unit"])
    ("did you mean 'budgets'? allowed: budgets, unit", 'allowed: budgets, unit')
    """
    names = list(known)
    near = difflib.get_close_matches(word, names, 1)
    return (f"did you mean {near[0]!r}? " if near else "") + f"allowed: {', '.join(names) or 'none'}"
