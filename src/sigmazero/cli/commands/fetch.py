"""`sigmazero fetch`: published weights into the models folder."""

import warnings
from typing import Annotated

import typer

from sigmazero import models
from sigmazero.cli import options
from sigmazero.cli.console import say, tell


def fetch(
    code: Annotated[str, typer.Argument(metavar="CODE", help="A model's code; see: sigmazero list models.")],
    model_dir: options.ModelDir = None,
) -> None:
    """Download the weights of a known model and check their hash.

    \b
    Example:
      sigmazero fetch M1
    """
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", models.UncheckedDownload)
        path = models.fetch(code, model_dir)
    for note in notes:
        tell(f"note: {note.message}")
    say(f"{code} is at {path}")
