"""Where text goes: results to stdout, everything else to stderr; and what happens if it cannot go there.

A reader that went away or a full disk must not cost the files that a command was about to write. So the command goes on
without that output, and its exit code tells.
"""

import codecs
import errno
import io
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from rich.console import Console

from sigmazero.core.messages import visible

INTERRUPTED, UNREAD, UNWRITTEN = 130, 141, 2  # as shells have it for Ctrl-C and for a closed pipe
_NARROW = 20  # columns in which our tables and help can still be read
_WIDE = 200  # columns of a file or pipe, in which no cell of a table need be broken
# What a terminal without Unicode shows instead of the signs in our tables; other characters are spelled out.
_PLAIN = {"∞": "inf", "–": "-", "−": "-", "×": "x", "σ": "sigma", "τ": "tau", "α": "alpha", "…": "..."}

_lost: list[OSError] = []  # why results could not be printed


class Screen(Console):
    """A console that takes every text as it is, and outlives its output."""

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, markup=False, highlight=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, if there is anywhere to print to."""
        with _surviving(self.file, result=not self.stderr):
            super().print(*objects, **options)

    def on_broken_pipe(self) -> None:
        """Rich would end the process."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


class Aside(io.TextIOBase):
    """A stream for what others print that is no result: it goes to stderr."""

    def write(self, text: str) -> int:
        """Pass a text on."""
        with _surviving(sys.stderr, result=False):
            sys.stderr.write(visible(text))
            sys.stderr.flush()
        return len(text)


def prepare() -> None:
    """Make the streams print whatever comes, and forget a width that is none. To be called before anything is said."""
    _lost.clear()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="sigmazero")
    columns = os.environ.get("COLUMNS", f"{_NARROW}")
    if not columns.isdecimal() or int(columns) < _NARROW:
        del os.environ["COLUMNS"]


def failure() -> int:
    """The exit code that says that results could not be printed; 0 if they could."""
    if not _lost:
        return 0
    if isinstance(_lost[0], BrokenPipeError):
        return UNREAD
    tell(f"error: the output could not be written ({_lost[0]}); files are complete", style="red")
    return UNWRITTEN


def out() -> Console:
    """The console for results."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    return Screen(width=None if terminal or "COLUMNS" in os.environ else _WIDE)


def err() -> Console:
    """The console for warnings and errors."""
    return Screen(stderr=True)


def say(text: str, style: str | None = None) -> None:
    """Print a line of the result; it is not broken, however long, and brackets in it are no markup."""
    out().print(visible(text), style=style, soft_wrap=True)


def tell(text: str, style: str | None = None) -> None:
    """Print a line for people, beside the results."""
    err().print(visible(text), style=style, soft_wrap=True)


def pour(text: str) -> None:
    """Print the text of a file as it is."""
    if sys.stdout is not None:
        with _surviving(sys.stdout, result=True):
            sys.stdout.write(text)
            sys.stdout.flush()


def show_path(path: Path) -> None:
    """Print where a file was written, on a line of its own."""
    say(f"wrote {path}")


def again() -> str:
    """The command that was given, to be given again."""
    return shlex.join(["sigmazero", *sys.argv[1:]])


@contextmanager
def _surviving(stream: IO[str], result: bool) -> Iterator[None]:
    """Go on where a stream takes no more: what else would come there is dropped, and lost results are noted."""
    try:
        yield
    except OSError as error:
        if result:
            _lost.append(error)
        with suppress(OSError), open(os.devnull, "wb") as nowhere:  # a stream without a number has nothing behind it
            os.dup2(nowhere.fileno(), stream.fileno())


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """What to print for characters that a stream cannot."""
    assert isinstance(error, UnicodeEncodeError)
    marks = error.object[error.start : error.end]
    return "".join(_PLAIN.get(mark) or mark.encode("unicode_escape").decode() for mark in marks), error.end


codecs.register_error("sigmazero", _spelled)
