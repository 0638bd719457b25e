"""`sigmazero run`: run what is missing of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sigmazero.cli import console, inputs, options, output
from sigmazero.cli.console import echo, warn

if TYPE_CHECKING:
    from sigmazero.bench.cells import Cell, Missing, Shard
    from sigmazero.bench.loader import Loader
    from sigmazero.bench.plan import Plan


def run(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan, such as experiments/small.toml.")],
    store: Path | None = typer.Option(None, metavar="FILE", help="The store; by default runs/NAME.db."),
    limit: int | None = typer.Option(None, metavar="N", help="A trial run of at most N rows, in its own store."),
    model: list[str] | None = typer.Option(None, metavar="NAME", help="Run only this model (repeatable)."),
    attack: list[str] | None = typer.Option(None, metavar="NAME", help="Run only this attack (repeatable)."),
    dry_run: bool = typer.Option(False, "--dry-run", help="List the cells and the time they need; run nothing."),
    anew: bool = typer.Option(False, "--anew", help="Replace stored cells that today's model contradicts."),
    trust_code: options.TrustCode = False,
    engine: Literal["local", "processes", "ray"] = options.about_run(
        "local", help="Run in this process, in several processes, or on a Ray cluster."
    ),
    workers: int | None = options.about_run(
        None, metavar="N", help="Number of workers; by default one for each core, or each GPU."
    ),
    address: str | None = options.about_run(
        None, metavar="ADDRESS", help="Address of a Ray cluster: auto, or HOST:PORT; by default Ray is started here."
    ),
    shard: str | None = options.about_run(
        None, metavar="I/N", help="Run only part I of N, which has some batches of each cell."
    ),
    device: options.Device = "auto",
    precision: Literal["fp32", "tf32", "bf16", "fp64"] | None = options.about_run(
        None, help="Number format, instead of the plan's."
    ),
    allow: options.Allow = None,
) -> None:
    """Run a plan, or finish an interrupted run.

    Only rows that the store does not have are run. Exit code 1: a cell failed, or its weights or data are missing;
    3: a finding makes numbers unreliable. Before stored rows are reused, each model is asked about 16 of them: if it
    contradicts one the exit code is 2, and --anew replaces them.

    A Ray cluster runs code for everybody who reaches its ports; docs/scaling.md says how to close them.

    \b
    Example:
      sigmazero run experiments/small.toml
      sigmazero run experiments/minimum-norm-1000.toml --limit 64 --device cuda
      sigmazero run mine.toml --trust-code
      sigmazero run experiments/small.toml --engine processes --workers 4
      sigmazero run experiments/small.toml --shard 3/16
      sigmazero run experiments/minimum-norm-1000.toml --model M1 --model M2 --attack sigma-zero --dry-run
    """
    from sigmazero.bench.cells import Shard, expand
    from sigmazero.bench.loader import refuse_untrusted
    from sigmazero.bench.plan_file import read_plan
    from sigmazero.bench.reuse import reuse
    from sigmazero.bench.run import execute
    from sigmazero.bench.workers import choose_engine
    from sigmazero.report import findings, runs
    from sigmazero.store.store import Store

    chosen = read_plan(plan).select(model or (), attack or ()).override(limit=limit, precision=precision)
    loader = inputs.loader(trust_code, device)
    refuse_untrusted([spec for each in chosen.questions for spec in (each.model, each.data)], loader.trust)
    part = None if shard is None else Shard.parse(shard)
    path = store_path(chosen, store, limit, part)
    cells, missing = expand(chosen.questions, loader)
    if dry_run:
        _forecast(cells, loader, path)
        show_missing(missing)
        return
    where = choose_engine(engine, loader, workers=workers, address=address)
    about = {"plan": chosen.name} | ({} if part is None else {"shard": str(part)})
    with Store(path, write=True) as opened:
        cells, _ = reuse(cells, opened, loader, anew)
        only = None if part is None else part.rows(cells)
        done = execute(
            cells, opened, loader, engine=where, only=only, title=chosen.name, progress=True, say=warn, about=about
        )
        show_missing(missing)
        loaded = runs.load(opened, [cell.info.key for cell in cells if only is None or only[cell.info.key].any()])
        doubts = findings.errors(findings.findings(opened, loaded))
        try:
            output.show_runs(loaded)
        except runs.MixtureError as error:
            warn(f"no table: {error}")
    for cell in cells:
        if (why := done.failed.get(cell.info.key)) is not None:
            warn(f"failed: {cell.info.attack} against {cell.info.model} on {cell.info.dataset}: {why}")
    stored = f"{done.rows} rows stored in {path}"
    if done.interrupted:
        warn(f"stopped; {stored}. To go on: {console.again()}")
        raise typer.Exit(130)
    echo(stored if done.rows or done.failed or missing else f"already done: {path} has every row")
    if done.failed or missing:
        warn(f"not complete: {len(done.failed)} cells failed, {sum(one.questions for one in missing)} are missing")
        raise typer.Exit(1)
    output.end(doubts, allow)


def store_path(plan: Plan, store: Path | None, limit: int | None, shard: Shard | None = None) -> Path:
    """Return the path of the store; a trial and each shard have stores of their own."""
    trial = "" if limit is None else f"-limit-{limit}"
    part = "" if shard is None else f"-part-{shard.number}-of-{shard.count}"
    return store or Path("runs") / f"{plan.name}{trial}{part}.db"


def _forecast(cells: Sequence[Cell], loader: Loader, path: Path) -> None:
    """Print the cells that are to be run, and how long they would take here."""
    from sigmazero.bench.forecast import forecast
    from sigmazero.report.formats import LEFT, count, number
    from sigmazero.report.status import duration
    from sigmazero.store.store import Store

    with Store(path) if path.is_file() else nullcontext() as opened:
        coming = forecast(cells, loader, opened)
    lines = []
    for one in coming:
        info = one.cell.info
        words = {"model": info.model, "data": info.dataset, "attack": info.attack, "budget": number(info.budget)}
        guess = ", a guess" if one.left and not one.measured else ""
        left = {"queries left": f"{one.queries:,}", "time left": duration(one.seconds) + guess}
        lines.append(words | {"rows": f"{one.done}/{info.rows}"} | left)
    if lines:
        console.show(lines, LEFT)
    left_rows, seconds = sum(one.left for one in coming), sum(one.seconds for one in coming)
    todo = f"{count(len(coming), 'cell')}, {count(left_rows, 'row')} left"
    echo(f"{todo}, about {duration(seconds)} on {loader.device}; nothing was run")


def show_missing(missing: Sequence[Missing]) -> None:
    """Name missing weights and data, and how to get them."""
    from sigmazero.cli.app import message

    for one in missing:
        warn(f"missing: {one.what} ({one.questions} cells). {message(one.error)}")
