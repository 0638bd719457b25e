"""`sigmazero merge`: several stores as one."""

from pathlib import Path
from typing import Annotated

import typer

from sigmazero.cli.console import say, show_path, tell
from sigmazero.store.merge import merge as unite

Stores = Annotated[list[Path], typer.Argument(metavar="STORE...", help="Stores, such as runs/small-part-*.db.")]


def merge(
    stores: Stores,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The store to write; it may exist.")],
    any_plan: Annotated[bool, typer.Option("--any", help="Also stores that different plans have filled.")] = False,
) -> None:
    """Write what several stores have to one, such as the parts of a plan that were run as shards.

    Each row keeps the provenance of its run; the order of the stores makes no difference. Facts that contradict each
    other are refused. A store that is there already keeps what it has.

    \b
    Example:
      sigmazero run experiments/small.toml --shard 1/2
      sigmazero run experiments/small.toml --shard 2/2
      sigmazero merge runs/small-part-*.db -o runs/small.db
    """
    done = unite(stores, out, any_plan=any_plan)
    show_path(out)
    say(f"{done.rows} rows of {done.cells} cells from {len(stores)} stores")
    if done.lacking:
        tell(f"{done.lacking} rows of these cells are still to be run; a run of the plan into {out} does so")
