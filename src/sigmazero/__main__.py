"""The command `sigmazero`, and `python -m sigmazero`."""

import sys


def main() -> None:
    """Run the command line, or say which packages it needs."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        sys.stderr.write(f"the command line needs {error.name}; pip install 'sigmazero[cli]'\n")
        raise SystemExit(2) from None
    from sigmazero.cli import app

    app(prog_name="sigmazero")


if __name__ == "__main__":
    main()
