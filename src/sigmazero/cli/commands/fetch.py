"""`sigmazero fetch`: published weights into the models folder."""

import sys
import warnings
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from sigmazero import models
from sigmazero.cli import options
from sigmazero.cli.console import err, say, tell
from sigmazero.core.messages import visible


def fetch(
    code: Annotated[str, typer.Argument(metavar="CODE", help="A model's code; see: sigmazero list models.")],
    model_dir: options.ModelDir = None,
) -> None:
    """Download the weights of a known model, go on where a download stopped, and check their hash.

    \b
    Example:
      sigmazero fetch M1
    """
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    shown = sys.stderr.isatty()
    with Progress(*columns, TimeRemainingColumn(), console=err(), transient=True, disable=not shown) as progress:
        task = progress.add_task(f"fetching {visible(code)}", total=None)

        def advance(done: int, total: int | None) -> None:
            progress.update(task, completed=done, total=total)

        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always", models.UncheckedDownload)
            path = models.fetch(code, model_dir, advance)
    for note in notes:
        tell(f"note: {note.message}")
    say(f"{code} is at {path}")
