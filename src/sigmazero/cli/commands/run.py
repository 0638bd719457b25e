"""`sigmazero run`: a plan into a store, doing only what is missing."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from sigmazero.bench.cells import Loader, Missing, expand
from sigmazero.bench.plan import Plan, read_plan
from sigmazero.bench.run import RunSummary, execute
from sigmazero.cli import options
from sigmazero.cli.app import INTERRUPTED
from sigmazero.cli.console import err, out
from sigmazero.report import measure
from sigmazero.report.tables.summary import LEFT, figures, load
from sigmazero.report.tables.text import rich_table
from sigmazero.store.store import Store

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan, such as experiments/small.toml.")]
StoreFile = Annotated[
    Path | None, typer.Option("--store", metavar="FILE", help="The store; runs/NAME.db by default, NAME the plan's.")
]
Trial = Annotated[int | None, typer.Option("--limit", metavar="N", help="A trial: at most N rows, in its own store.")]
Numbers = Annotated[
    str | None, typer.Option("--precision", metavar="NAME", help="fp32, tf32, bf16 or fp64, instead of the plan's.")
]
Size = Annotated[int | None, typer.Option("--batch-size", metavar="N", help="Rows at a time, instead of the plan's.")]
Wait = Annotated[float, typer.Option("--wait", metavar="S", help="Seconds to wait while another process writes.")]


def run(
    plan: PlanFile,
    store: StoreFile = None,
    limit: Trial = None,
    batch_size: Size = None,
    device: options.Device = "auto",
    precision: Numbers = None,
    model_dir: options.ModelDir = None,
    data_dir: options.DataDir = None,
    wait: Wait = 0.0,
) -> None:
    """Run what a plan asks and its store does not have yet; the same command goes on after any interruption.

    Exit code 1 if a cell failed or lacks its weights or data, 130 after Ctrl-C.

    \b
    Example:
      sigmazero run experiments/small.toml
      sigmazero run experiments/minimum-norm-1000.toml --limit 64 --device cuda
    """
    asked = read_plan(plan).override(limit=limit, batch_size=batch_size, precision=precision)
    path, loader = store_path(asked, store, limit), Loader(options.device(device), model_dir, data_dir)
    with Store(path, write=True, wait=wait) as opened:
        cells, missing = expand(asked.questions, loader)
        report = execute(cells, opened, loader, title=asked.name, progress=True, say=tell)
        show_missing(missing)
        show_table(opened, [cell.info.key for cell in cells])
        for key, error in report.failed.items():
            info = next(cell.info for cell in cells if cell.info.key == key)
            tell(f"failed: {info.attack} against {info.model} on {info.dataset}: {error}")
    finish(report, missing, path)


def store_path(plan: Plan, store: Path | None, limit: int | None) -> Path:
    """Where a plan's facts go; a trial's go elsewhere, since its rows are others."""
    return store or Path("runs") / (f"{plan.name}.db" if limit is None else f"{plan.name}-limit-{limit}.db")


def show_table(store: Store, keys: list[str]) -> None:
    """Print the figures of these cells."""
    try:
        caption, rows = figures(measure.table(load(store, keys)))
    except ValueError as error:  # cells that one table may not mix
        tell(f"no table: {error}")
        return
    if rows:
        out().print(caption, markup=False, highlight=False, soft_wrap=True)
        out().print(rich_table(rows, left=LEFT))


def show_missing(missing: list[Missing]) -> None:
    """Say what to fetch."""
    for one in missing:
        tell(f"missing: {one.what} ({one.questions} cells). {one.advice}")


def finish(report: RunSummary, missing: list[Missing], path: Path) -> None:
    """The last line, and the exit code."""
    kept = f"{report.rows} rows stored in {path}"
    if report.interrupted:
        again = shlex.join(["sigmazero", *sys.argv[1:]])
        tell(f"stopped; {kept}. To go on: {again}")
        raise typer.Exit(INTERRUPTED)
    out().print(kept, markup=False, highlight=False, soft_wrap=True)
    if report.failed or missing:
        tell(f"not complete: {len(report.failed)} cells failed, {sum(one.questions for one in missing)} are missing")
        raise typer.Exit(1)


def tell(text: str) -> None:
    """A line for people, beside the results."""
    err().print(text, markup=False, highlight=False, soft_wrap=True)
