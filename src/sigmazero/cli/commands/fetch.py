"""`sigmazero fetch`: published weights into the models folder."""

from typing import Annotated

import typer

from sigmazero.cli.console import echo, warnings_as_lines


def fetch(code: Annotated[str, typer.Argument(metavar="MODEL", help="A code; see: sigmazero list models.")]) -> None:
    """Download weights, and check their hash.

    \b
    Example:
      sigmazero fetch M1
    """
    from sigmazero import models

    with warnings_as_lines():
        path = models.fetch(code)
    echo(f"{code} is at {path}")
