"""Where in a TOML text a key stands: the standard library's reader does not say, and an error should."""

import re

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
