"""`sigmazero repair`: what can be read of a damaged store, as a new one."""

from pathlib import Path
from typing import Annotated

import typer

from sigmazero.cli import options
from sigmazero.cli.console import say, show_path, tell
from sigmazero.store.repair import repair as copy_readable


def repair(
    store: options.StoreFile,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The new store; it must not exist yet.")],
) -> None:
    """Copy what can be read of a damaged store to a new one, and say what was lost, cell by cell.

    Only what has the checksum it was written with is copied; the damaged store is left as it is. Exit code 1 if
    something was lost. A run into the new store makes the lost rows again.

    \b
    Example:
      sigmazero repair runs/damaged.db -o runs/repaired.db
    """
    done = copy_readable(store, out)
    for one in done.cells:
        if one.rows < one.of:
            place = f"{one.info.attack} against {one.info.model} on {one.info.dataset} [{one.info.key[:12]}]"
            tell(f"lost: {one.of - one.rows} of {one.of} rows of {place}")
    for what in done.lost:
        tell(f"lost: {what}")
    show_path(out)
    say(f"{sum(one.rows for one in done.cells)} rows of {len(done.cells)} cells copied")
    if not done.whole:
        raise typer.Exit(1)
