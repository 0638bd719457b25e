"""`sigmazero merge`: combine several stores."""

from pathlib import Path
from typing import Annotated

import typer

from sigmazero.cli.console import echo, warn, wrote


def merge(
    stores: Annotated[list[Path], typer.Argument(metavar="STORE...", help="Stores, such as runs/small-part-*.db.")],
    out: Path = typer.Option(..., "--out", "-o", metavar="FILE", help="The store to write to; it may exist."),
) -> None:
    """Combine stores, such as the shards of a plan.

    Each row keeps the provenance of its run. If two stores have the same row from different runs, the first one is
    kept and the others are counted. An existing store keeps its rows.

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
        warn(f"{done.lacking} rows of these cells are missing; run the plan with --store {out} to add them")
