"""Where text goes: results to stdout, everything else to stderr."""

import os
import sys
from pathlib import Path

from rich.console import Console

_WIDE = 200  # columns of a file or pipe, in which no cell of a table need be broken


def out() -> Console:
    """The console for results."""
    return Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDE)


def err() -> Console:
    """The console for warnings and errors."""
    return Console(stderr=True)


def say(text: str, style: str | None = None) -> None:
    """Print a line of the result; it is not broken, however long, and brackets in it are no markup."""
    out().print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def tell(text: str, style: str | None = None) -> None:
    """Print a line for people, beside the results."""
    err().print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def show_path(path: Path) -> None:
    """Print where a file was written, on a line of its own."""
    say(f"wrote {path}")
