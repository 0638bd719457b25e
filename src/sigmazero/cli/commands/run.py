"""`sigmazero run`: a plan into a store, doing only what is missing."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from sigmazero.bench.cells import Cell, Missing, Shard, expand
from sigmazero.bench.loader import Loader
from sigmazero.bench.plan import read_plan
from sigmazero.bench.reuse import reuse
from sigmazero.bench.run import RunSummary, execute
from sigmazero.bench.workers import choose_engine
from sigmazero.cli import options
from sigmazero.cli.console import INTERRUPTED, again, out, say, tell
from sigmazero.cli.findings import Allow, end
from sigmazero.cli.fitting import show_rows
from sigmazero.cli.forecast import show_forecast
from sigmazero.cli.plans import (
    PlanBatchSize,
    PlanFile,
    PlanPrecision,
    PlanStore,
    ShardNumber,
    Trial,
    noted,
    show_missing,
    store_path,
    trusted,
)
from sigmazero.core.findings import Finding
from sigmazero.report import findings as doubts
from sigmazero.report import runs, table
from sigmazero.report.formats import LEFT, rows
from sigmazero.store.store import Store

Models = Annotated[
    list[str] | None,
    typer.Option("--models", metavar="NAME...", help="Only these models of the plan: M1 M2, or M1,M2."),
]
Attacks = Annotated[
    list[str] | None, typer.Option("--attacks", metavar="NAME...", help="Only these attacks of the plan.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the cells and how long they will take; run none.")]
Anew = Annotated[bool, typer.Option("--anew", help="Replace stored cells that the present model contradicts.")]
Wait = Annotated[float, typer.Option("--wait", metavar="S", help="Seconds to wait while another process writes.")]


def run(
    plan: PlanFile,
    store: PlanStore = None,
    limit: Trial = None,
    batch_size: PlanBatchSize = None,
    device: options.DeviceName = "auto",
    precision: PlanPrecision = None,
    prepare: options.PrepareName = "auto",
    model_dir: options.ModelDir = None,
    data_dir: options.DataDir = None,
    wait: Wait = 0.0,
    trust_code: options.TrustCode = False,
    engine: options.EngineName = "local",
    workers: options.Workers = None,
    address: options.Address = None,
    gpus_per_worker: options.GpusPerWorker = None,
    shard: ShardNumber = None,
    models: Models = None,
    attacks: Attacks = None,
    allow: Allow = None,
    dry_run: DryRun = False,
    anew: Anew = False,
) -> None:
    """Run what a plan asks and its store does not have yet; the same command goes on after any interruption.

    Exit code 1 if a cell failed or lacks its weights or data, 3 if a finding makes figures doubtful, 130 after Ctrl-C.
    Code that the plan names, such as file.py:build, runs only with --trust-code. Before stored rows are reused each
    model is asked about 16 of them: exit code 2 if it contradicts one, and --anew then replaces them.

    A Ray cluster runs what anybody sends it who reaches its ports: start yours with RAY_AUTH_MODE=token and the same
    RAY_AUTH_TOKEN_PATH on every node, and set both here.

    \b
    Example:
      sigmazero run experiments/small.toml
      sigmazero run experiments/minimum-norm-1000.toml --limit 64 --device cuda
      sigmazero run mine.toml --trust-code
      sigmazero run experiments/small.toml --engine processes --workers 4
      sigmazero run experiments/small.toml --shard 3/16
      sigmazero run experiments/minimum-norm-1000.toml --models M1 M2 --attacks sigma-zero --dry-run
    """
    asked = read_plan(plan).select(names(models), names(attacks))
    asked = asked.override(limit=limit, batch_size=batch_size, precision=precision, prepare=options.prepare(prepare))
    trust = trusted(asked, options.trust(trust_code))
    part = None if shard is None else Shard.parse(shard)
    path, loader = store_path(asked, store, limit, part), Loader(options.device(device), model_dir, data_dir, trust)
    if dry_run:
        show_forecast(asked.questions, loader, path)
        return
    chosen = choose_engine(engine, loader, workers=workers, address=address, gpus_per_worker=gpus_per_worker)
    with Store(path, write=True, wait=wait) as opened:
        cells, missing = expand(asked.questions, loader)
        cells, _ = reuse(cells, opened, loader, anew)
        only = None if part is None else part.rows(cells)
        go = partial(execute, title=asked.name, progress=True, say=tell, about=noted(asked, part))
        report = go(cells, opened, loader, engine=chosen, only=only)
        show_missing(missing)
        found = show_table(opened, [cell.info.key for cell in cells if only is None or only[cell.info.key].any()])
        show_failed(report, cells)
    finish(report, missing, path, found, allow)


def names(given: list[str] | None) -> list[str]:
    """Names that were given one by one, or with commas between them.

    >>> names(["M1,M2", "demo"]), names(None)
    (['M1', 'M2', 'demo'], [])
    """
    return [name for text in given or () for name in text.split(",") if name]


def show_failed(report: RunSummary, cells: list[Cell]) -> None:
    """Say which cells failed, and why."""
    known = {cell.info.key: cell.info for cell in cells}
    for key, error in report.failed.items():
        info = known[key]
        tell(f"failed: {info.attack} against {info.model} on {info.dataset}: {error}")


def show_table(store: Store, keys: list[str]) -> list[Finding]:
    """Print the figures of these cells; what makes them doubtful is returned."""
    loaded = runs.load(store, keys)
    found = doubts.errors(doubts.findings(store, loaded))
    try:
        made = [table.build(name, loaded) for name in table.kinds(loaded)]
    except runs.MixtureError as error:
        tell(f"no table: {error}")
        return found
    for each in made:
        say(each.caption)
        show_rows(rows(each), LEFT, out())
    return found


def finish(
    report: RunSummary,
    missing: list[Missing],
    path: Path,
    found: Sequence[Finding] = (),
    allow: list[str] | None = None,
) -> None:
    """The last line, and the exit code."""
    kept = f"{report.rows} rows stored in {path}"
    if report.interrupted:
        tell(f"stopped; {kept}. To go on: {again()}")
        raise typer.Exit(INTERRUPTED)
    say(kept)
    if report.failed or missing:
        tell(f"not complete: {len(report.failed)} cells failed, {sum(one.questions for one in missing)} are missing")
        raise typer.Exit(1)
    end(found, allow)
