"""The command `sigmazero`, and `python -m sigmazero`."""

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["load", "main"]


def main() -> None:
    """Run the command line."""
    try:
        app = load()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise SystemExit(130) from None
    app(prog_name="sigmazero")


def load() -> Callable[..., Any]:
    """The command line; this takes seconds, since torch comes with it."""
    from sigmazero.cli import app

    return app


if __name__ == "__main__":
    main()
