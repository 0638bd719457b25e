"""`sigmazero fetch`: download published weights."""

from typing import Annotated

import typer

from sigmazero.cli.console import echo, warnings_as_lines


def fetch(code: Annotated[str, typer.Argument(metavar="MODEL", help="A code of sigmazero list models.")]) -> None:
    """Download the weights of a model, and check their hash.

    \b
    Example:
      sigmazero fetch M1
    """
    from sigmazero import models

    with warnings_as_lines():
        path = models.fetch(code)
    echo(f"{code} is at {path}")
