"""Where text goes: results to stdout, everything else to stderr."""

import os
import re
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sigmazero.core.messages import visible

WIDE = 200  # columns of a file or pipe
NARROW = 20  # columns in which tables and help can still be read


def prepare() -> None:
    """Let the streams spell out what they cannot encode, and forget a terminal width that is not one."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    columns = os.environ.get("COLUMNS", f"{NARROW}")
    if not columns.isdecimal() or int(columns) < NARROW:
        del os.environ["COLUMNS"]


def discard() -> None:
    """Drop what is still to be printed, quietly."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def screen(*, stderr: bool = False) -> Any:
    """Return a console of rich that prints every text as it is."""
    from rich.console import Console

    class Screen(Console):
        def on_broken_pipe(self) -> None:  # rich would end the process
            raise BrokenPipeError

    wide = not stderr and not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Screen(stderr=stderr, width=WIDE if wide else None, emoji=False, markup=False, highlight=False)


def echo(text: str, style: str | None = None) -> None:
    """Print a line of the result; it is not broken, however long."""
    screen().print(visible(text), style=style, soft_wrap=True)


def warn(text: str, style: str | None = None) -> None:
    """Print a line for people, beside the results."""
    screen(stderr=True).print(visible(text), style=style, soft_wrap=True)


def write(text: str) -> None:
    """Print the text of a file as it is."""
    sys.stdout.write(text)


def show(lines: Sequence[Any], left: Sequence[str] = (), *, down: bool = False) -> None:
    """Print rows of text as a table; `left` names the columns of words."""
    from sigmazero.report.formats import rich_table

    screen().print(rich_table(lines, left, down=down))


def wrote(*paths: object) -> None:
    """Say which files were written."""
    for path in paths:
        warn(f"wrote {path}")


def count(many: int, what: str) -> str:
    """Return a number of things.

    >>> count(1, "model"), count(2, "model")
    ('1 model', '2 models')
    """
    return f"{many} {what}{'' if many == 1 else 's'}"


def again() -> str:
    """Return the command that was given, to be given again."""
    return shlex.join(["sigmazero", *sys.argv[1:]])


@contextmanager
def warnings_as_lines(hide: str = "$.") -> Iterator[None]:
    """Print the warnings that a script would get as lines, each once; not those that fit the pattern `hide`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    texts = [str(each.message) for each in caught if issubclass(each.category, UserWarning | RuntimeWarning)]
    for text in dict.fromkeys(texts):
        if not re.search(hide, text):
            warn(f"warning: {text}", style="yellow")
