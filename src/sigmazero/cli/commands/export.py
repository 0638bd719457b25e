"""`sigmazero export`: a store as one flat file."""

from pathlib import Path
from typing import Annotated

import typer

from sigmazero.cli import options
from sigmazero.cli.console import show_path
from sigmazero.store import export as formats
from sigmazero.store.store import Store


def export(
    store: options.StoreFile,
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="csv, jsonl or parquet (needs pyarrow).")] = "csv",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to; by default beside the store.")
    ] = None,
    perturbations: Annotated[
        bool, typer.Option("--perturbations", help="Also which features changed, and what they became.")
    ] = False,
) -> None:
    """Write a store's samples to a file, one per line, for a spreadsheet or another program.

    \b
    Example:
      sigmazero export runs/small.db --to csv --out small.csv
    """
    form = formats.known(to)
    target = store.with_suffix(f".{form}") if out is None else out
    with Store(store) as opened:
        formats.export(opened, target, form, perturbations)
    show_path(target)
