"""Print results to stdout, and everything else to stderr."""

import os
import re
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sigmazero.core.messages import visible

WIDE = 200  # columns of a table in a file or pipe
MAX_LINES = 50  # of a list of problems


def prepare() -> None:
    """Write characters that the terminal cannot encode as escapes, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def discard() -> None:
    """Drop the rest of the output, after its reader has gone."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def screen(*, stderr: bool = False) -> Any:
    """Return a rich console that prints text as it is, without markup."""
    from rich.console import Console

    class Screen(Console):
        def on_broken_pipe(self) -> None:  # rich would end the process
            raise BrokenPipeError

    wide = not stderr and not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Screen(stderr=stderr, width=WIDE if wide else None, emoji=False, markup=False, highlight=False)


def echo(text: str, style: str | None = None) -> None:
    """Print a line of the result, without line breaks."""
    screen().print(visible(text), style=style, soft_wrap=True)


def warn(text: str, style: str | None = None) -> None:
    """Print a message to stderr."""
    screen(stderr=True).print(visible(text), style=style, soft_wrap=True)


def warn_of(lines: Sequence[str]) -> None:
    """Print the first of many messages."""
    for line in lines[:MAX_LINES]:
        warn(line)
    if len(lines) > MAX_LINES:
        warn(f"and {len(lines) - MAX_LINES} more")


def show(lines: Sequence[Any], left: Sequence[str] = (), *, down: bool = False) -> None:
    """Print rows as a table; `left` names the columns that are aligned to the left."""
    from sigmazero.report.formats import rich_table

    screen().print(rich_table(lines, left, down=down))


def wrote(*paths: object) -> None:
    """Say which files were written."""
    for path in paths:
        warn(f"wrote {path}")


def again() -> str:
    """Return the command line that was given, so that people can repeat it."""
    return shlex.join(["sigmazero", *sys.argv[1:]])


@contextmanager
def warnings_as_lines(hide: str = "$.") -> Iterator[None]:
    """Print Python warnings as messages, each once; leave out those that match the pattern `hide`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    texts = [str(each.message) for each in caught if issubclass(each.category, UserWarning | RuntimeWarning)]
    for text in dict.fromkeys(texts):
        if not re.search(hide, text):
            warn(f"warning: {text}", style="yellow")
