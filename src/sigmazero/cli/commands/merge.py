"""`sigmazero merge`: several stores as one."""

from pathlib import Path
from typing import Annotated

import typer

from sigmazero.cli.console import echo, warn, wrote

Stores = Annotated[list[Path], typer.Argument(metavar="STORE...", help="Stores, such as runs/small-part-*.db.")]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The store to write; it may exist.")]


def merge(stores: Stores, out: Out) -> None:
    """Combine stores, such as the shards of a plan.

    Each row keeps the provenance of its run. Where two stores have a row from different runs, the first one's is kept
    and the rest are counted. A store that is there already keeps what it has.

    \b
    Example:
      sigmazero run experiments/small.toml --shard 1/2
      sigmazero run experiments/small.toml --shard 2/2
      sigmazero merge runs/small-part-*.db -o runs/small.db
    """
    from sigmazero.store.merge import merge as unite

    done = unite(stores, out)
    wrote(out)
    echo(f"{done.rows} rows of {done.cells} cells from {len(stores)} stores")
    for again in done.repeated:
        warn(str(again))
    if done.lacking:
        warn(f"{done.lacking} rows of these cells are still to be run; a run of the plan into {out} does so")
