"""Where text goes: results to stdout, everything else to stderr."""

import os
import sys

from rich.console import Console

_WIDE = 200  # columns of a file or pipe, in which no cell of a table need be broken


def out() -> Console:
    """The console for results."""
    return Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDE)


def err() -> Console:
    """The console for warnings and errors."""
    return Console(stderr=True)
