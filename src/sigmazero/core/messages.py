"""Make texts from outside harmless, write values as text, and warn at the user's line."""

import hashlib
import json
import re
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Control characters may command a terminal; others turn the direction of writing or end a line unseen. Not newlines.
_CONTROL = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# A cell that begins like this is a formula, also after blanks.
_FORMULA = re.compile(r"\s*[=+\-@\t\r]")


def visible(text: str) -> str:
    r"""Spell out the control characters of a text.

    >>> print(visible("red: \x1b[31m"))
    red: \x1b[31m
    """
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def harmless(text: str) -> str:
    """Quote a text that a spreadsheet would take for a formula; a number stays as it is.

    >>> harmless("=1+1"), harmless("sigma-zero"), harmless("-0.5"), harmless("-inf")
    ("'=1+1", 'sigma-zero', '-0.5', '-inf')
    """
    if not _FORMULA.match(text):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def shown(text: object) -> str:
    """Shorten a text of a file to one line of a message.

    >>> shown("conv1.weight"), shown("two\\nlines"), len(shown("x" * 1000))
    ('conv1.weight', "'two\\\\nlines'", 83)
    """
    word = str(text)
    short = word if len(word) <= 80 else f"{word[:80]}..."
    return short if short.isprintable() else ascii(short)


def one_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
    return line if line.isprintable() else ascii(line)


def canonical(value: Any) -> str:
    """Return JSON with one spelling for each value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def describe(error: BaseException) -> str:
    """Return an error as one line that says whose fault it is.

    An error that this package raises on purpose is its text. One that was raised in a user's file keeps its type and
    names the line. Any other error inside this package is a bug, and says so.
    """
    own, installed = Path(__file__).parents[1], tuple(sysconfig.get_paths().values())
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    text = " ".join(text.split("\n")).strip()
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if own in Path(frame.filename).parents]
    known = [frame for frame in frames if frame in ours or not frame.filename.startswith((*installed, "<"))]
    if ours and known[-1] not in ours:
        return f"{type(error).__name__}: {text} ({known[-1].filename}, line {known[-1].lineno})"
    if isinstance(error, OSError | MemoryError | ImportError):
        return text or type(error).__name__
    if not known or frames[-1] is not known[-1]:  # raised by a library
        return f"{type(error).__name__}: {text}"
    if isinstance(error, ValueError | LookupError | TypeError | RuntimeError) and (frames[-1].line or "").startswith(
        "raise"
    ):
        return text or type(error).__name__
    return f"{type(error).__name__}: {text} (a bug in sigmazero: {frames[-1].filename}, line {frames[-1].lineno})"


def class_name(classes: Sequence[str] | None, number: int, unnamed: str = "") -> str:
    """Return the name of a class, or the word `unnamed` and its number where it has none.

    >>> class_name(["cat", "dog"], 1), class_name(None, 7), class_name(None, 7, "class ")
    ('dog', '7', 'class 7')
    """
    return str(classes[number]) if classes is not None and 0 <= number < len(classes) else f"{unnamed}{number}"


def warn_caller(text: str, kind: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line outside this package."""
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, kind, stacklevel=level)
