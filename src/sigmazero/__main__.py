"""The command `sigmazero`, and `python -m sigmazero`."""

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["load", "main"]


def main() -> None:
    """Run the command line, or say which packages it needs."""
    try:
        app = load()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise SystemExit(130) from None
    app(prog_name="sigmazero")


def load() -> Callable[..., Any]:
    """The command line; this takes seconds, since torch comes with it."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        sys.stderr.write(f"the command line needs {error.name}; pip install 'sigmazero[cli]'\n")
        raise SystemExit(2) from None
    from sigmazero.cli import app

    return app


if __name__ == "__main__":
    main()
