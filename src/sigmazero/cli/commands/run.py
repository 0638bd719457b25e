"""`sigmazero run`: a plan into a store, doing only what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sigmazero.cli import console, inputs, options, output
from sigmazero.cli.console import echo, warn

if TYPE_CHECKING:
    from sigmazero.bench.cells import Missing, Shard
    from sigmazero.bench.loader import Loader
    from sigmazero.bench.plan import Plan

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan, such as experiments/small.toml.")]
PlanStore = Annotated[
    Path | None, typer.Option("--store", metavar="FILE", help="The store; runs/NAME.db by default, NAME the plan's.")
]
Trial = Annotated[int | None, typer.Option("--limit", metavar="N", help="A trial: at most N rows, in its own store.")]
Models = Annotated[
    list[str] | None, typer.Option("--model", metavar="NAME", help="Run only this model of the plan (repeatable).")
]
Attacks = Annotated[
    list[str] | None, typer.Option("--attack", metavar="NAME", help="Run only this attack of the plan (repeatable).")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the cells and how long they will take; run none.")]
Anew = Annotated[bool, typer.Option("--anew", help="Replace stored cells that the present model contradicts.")]
Engine = Annotated[
    Literal["local", "processes", "ray"],
    options.about_run(help="Where to compute: in this process, in others, or on a Ray cluster."),
]
Workers = Annotated[
    int | None,
    options.about_run(metavar="N", help="Workers; by default one for each core, or each GPU."),
]
Address = Annotated[
    str | None,
    options.about_run(metavar="ADDRESS", help="Of a Ray cluster: auto, or HOST:PORT; by default Ray is started here."),
]
GpusPerWorker = Annotated[
    float | None,
    options.about_run(metavar="X", help="Of a Ray worker: 0.25 puts four on one GPU."),
]
ShardNumber = Annotated[
    str | None,
    options.about_run("--shard", metavar="I/N", help="Run only part I of N: some batches of each cell."),
]
PlanPrecision = Annotated[
    Literal["fp32", "tf32", "bf16", "fp64"] | None,
    options.about_run("--precision", help="Number format, instead of the plan's."),
]


def run(
    plan: PlanFile,
    store: PlanStore = None,
    limit: Trial = None,
    model: Models = None,
    attack: Attacks = None,
    dry_run: DryRun = False,
    anew: Anew = False,
    trust_code: options.TrustCode = False,
    engine: Engine = "local",
    workers: Workers = None,
    address: Address = None,
    gpus_per_worker: GpusPerWorker = None,
    shard: ShardNumber = None,
    batch_size: options.BatchSize = None,
    device: options.Device = "auto",
    precision: PlanPrecision = None,
    allow: options.Allow = None,
) -> None:
    """Run a plan, or finish an interrupted run.

    Only what the store lacks is run. Exit code 1 if a cell failed or lacks its weights or data, 3 if a finding makes
    numbers unreliable. Before stored rows are reused each model is asked about 16 of them: exit code 2 if it
    contradicts one, and --anew then replaces them.

    A Ray cluster runs what anybody sends it who reaches its ports: start yours with RAY_AUTH_MODE=token and the same
    RAY_AUTH_TOKEN_PATH on every node, and set both here.

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
    from sigmazero.bench.loader import Loader, refuse_untrusted
    from sigmazero.bench.plan_file import read_plan
    from sigmazero.bench.reuse import reuse
    from sigmazero.bench.run import execute
    from sigmazero.bench.workers import choose_engine
    from sigmazero.report import findings, runs
    from sigmazero.store.store import Store

    asked = read_plan(plan).select(model or (), attack or ())
    asked = asked.override(limit=limit, batch_size=batch_size, precision=precision)
    trust, codes = inputs.trust(trust_code), inputs.allowed_codes(allow)
    refuse_untrusted([spec for each in asked.questions for spec in (each.model, each.data)], trust)
    part = None if shard is None else Shard.parse(shard)
    path, loader = store_path(asked, store, limit, part), Loader(inputs.device(device), trust=trust)
    if dry_run:
        _forecast(asked, loader, path)
        return
    chosen = choose_engine(engine, loader, workers=workers, address=address, gpus_per_worker=gpus_per_worker)
    about = {"plan": asked.name} | ({} if part is None else {"shard": str(part)})
    with Store(path, write=True) as opened:
        cells, missing = expand(asked.questions, loader)
        cells, _ = reuse(cells, opened, loader, anew)
        only = None if part is None else part.rows(cells)
        done = execute(
            cells, opened, loader, engine=chosen, only=only, title=asked.name, progress=True, say=warn, about=about
        )
        show_missing(missing)
        keys = [cell.info.key for cell in cells if only is None or only[cell.info.key].any()]
        loaded = runs.load(opened, keys)
        doubts = findings.errors(findings.findings(opened, loaded))
        try:
            output.show_runs(loaded)
        except runs.MixtureError as error:
            warn(f"no table: {error}")
    for cell in cells:
        if (error_line := done.failed.get(cell.info.key)) is not None:
            warn(f"failed: {cell.info.attack} against {cell.info.model} on {cell.info.dataset}: {error_line}")
    stored = f"{done.rows} rows stored in {path}"
    if done.interrupted:
        warn(f"stopped; {stored}. To go on: {console.again()}")
        raise typer.Exit(130)
    echo(stored if done.rows or done.failed or missing else f"already done: {path} has every row")
    if done.failed or missing:
        warn(f"not complete: {len(done.failed)} cells failed, {sum(one.questions for one in missing)} are missing")
        raise typer.Exit(1)
    output.end(doubts, codes)


def store_path(plan: Plan, store: Path | None, limit: int | None, shard: Shard | None = None) -> Path:
    """Return where results go; a trial's go elsewhere, since it has other rows, and each shard has its own store."""
    trial = "" if limit is None else f"-limit-{limit}"
    part = "" if shard is None else f"-part-{shard.number}-of-{shard.count}"
    return store or Path("runs") / f"{plan.name}{trial}{part}.db"


def _forecast(plan: Plan, loader: Loader, path: Path) -> None:
    """Print what would be run, and how long it would take here."""
    from sigmazero.bench.cells import expand
    from sigmazero.bench.forecast import forecast
    from sigmazero.report.formats import LEFT, number
    from sigmazero.report.status import duration
    from sigmazero.store.store import Store

    cells, missing = expand(plan.questions, loader)
    with Store(path) if path.is_file() else nullcontext() as opened:
        coming = forecast(cells, loader, opened)
    lines = [
        {
            "model": one.cell.info.model,
            "data": one.cell.info.dataset,
            "attack": one.cell.info.attack,
            "budget": number(one.cell.info.budget),
            "rows": f"{one.done}/{one.cell.info.rows}",
            "queries left": f"{one.queries:,}",
            "time left": duration(one.seconds) + ("" if one.measured or not one.left else ", a guess"),
        }
        for one in coming
    ]
    if lines:
        console.show(lines, LEFT)
    left, seconds = sum(one.left for one in coming), sum(one.seconds for one in coming)
    todo = f"{console.count(len(coming), 'cell')}, {console.count(left, 'row')} left"
    echo(f"{todo}, about {duration(seconds)} on {loader.device}; nothing was run")
    show_missing(missing)


def show_missing(missing: Sequence[Missing]) -> None:
    """Say what is missing, and how to get it."""
    from sigmazero.cli.app import message

    for one in missing:
        warn(f"missing: {one.what} ({one.questions} cells). {message(one.error)}")
