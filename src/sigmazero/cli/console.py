"""Where text goes: results to stdout, everything else to stderr."""

from rich.console import Console


def out() -> Console:
    """The console for results."""
    return Console()


def err() -> Console:
    """The console for warnings and errors."""
    return Console(stderr=True)
