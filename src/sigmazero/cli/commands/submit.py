"""`sigmazero submit`: a plan as an array of jobs for a cluster."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from sigmazero.bench.engines.choose import check_engine
from sigmazero.bench.plan import read_plan
from sigmazero.bench.shards import Shard
from sigmazero.bench.slurm import Job, script, send
from sigmazero.cli import options
from sigmazero.cli.console import pour, say
from sigmazero.cli.plans import PlanBatchSize, PlanFile, PlanPrecision, Trial, store_path, trusted

Shards = Annotated[int, typer.Option("--shards", metavar="N", help="How many parts, all alike in cost.")]
Slurm = Annotated[bool, typer.Option("--slurm", help="For SLURM, the one scheduler known here.")]
Now = Annotated[bool, typer.Option("--now", help="Submit it, which needs submitit, instead of printing it.")]
Time = Annotated[str | None, typer.Option("--time", metavar="TIME", help="Of one part: 04:00:00; --now needs it.")]
Gpus = Annotated[str, typer.Option("--gpus", metavar="N", help="Of one part: 1, a100:1, or 0.")]
Partition = Annotated[str | None, typer.Option("--partition", metavar="NAME", help="Where to queue.")]
SetupLine = Annotated[
    str | None, typer.Option("--setup", metavar="LINE", help="Shell line to run first: module load ...")
]


def submit(
    plan: PlanFile,
    shards: Shards,
    slurm: Slurm = False,
    now: Now = False,
    time: Time = None,
    gpus: Gpus = "1",
    partition: Partition = None,
    setup: SetupLine = None,
    limit: Trial = None,
    batch_size: PlanBatchSize = None,
    precision: PlanPrecision = None,
    device: options.DeviceName = "auto",
    prepare: options.PrepareName = "fold",
    engine: options.EngineName = "local",
    workers: options.Workers = None,
    model_dir: options.ModelDir = None,
    data_dir: options.DataDir = None,
    trust_code: options.TrustCode = False,
    model: options.TrustedModel = None,
    data: options.TrustedData = None,
) -> None:
    """Print a script that runs a plan as an array of jobs, each one shard of it; its last lines say how to merge them.

    The parts need the same folder, weights and data. More parts than GPUs are no waste: whoever is done takes the next.

    \b
    Example:
      sigmazero submit experiments/small.toml --slurm --shards 16 --time 01:00:00 > job.sh
      sbatch job.sh
    """
    if not slurm:
        raise ValueError("for which scheduler? Write --slurm, the one that is known here")
    asked = read_plan(plan).override(limit=limit, batch_size=batch_size, precision=precision)
    trusted(asked, options.trust(trust_code, model, data))
    check_engine(engine, workers=workers)
    values: dict[str, object] = {"limit": limit, "batch-size": batch_size, "precision": precision}
    values |= {"device": options.device(device, here=False) if device != "auto" else None}
    values |= {"prepare": options.prepare(prepare) if prepare != "fold" else None}
    values |= {"engine": engine if engine != "local" else None, "workers": workers}
    values |= {"model-dir": model_dir, "data-dir": data_dir}
    first, last = str(store_path(asked, None, limit, Shard(1, max(shards, 1)))).rsplit("-1-", 1)
    job = Job(
        name=asked.name,
        arguments=(str(plan), *words(values, trust_code, model, data)),
        shards=shards,
        parts=f"{shlex.quote(first)}-*-{shlex.quote(last)}",
        whole=store_path(asked, None, limit),
        folder=Path.cwd(),
        time=time,
        gpus=gpus,
        partition=partition,
        setup=setup,
    )
    if not now:
        pour(script(job))
        return
    for number in send(job):
        say(number)


def words(values: Mapping[str, object], trust: bool, model: list[str] | None, data: list[str] | None) -> list[str]:
    """Options as they are written on a command line.

    >>> words({"limit": 4, "precision": None}, True, ["net.py:build"], None)
    ['--limit', '4', '--trust-code', '--model', 'net.py:build']
    """
    pairs = [(f"--{name}", str(value)) for name, value in values.items() if value is not None]
    trusted = [("--model", name) for name in model or ()] + [("--data", name) for name in data or ()]
    given, named = ([word for pair in some for word in pair] for some in (pairs, trusted))
    return [*given, *(["--trust-code"] if trust else []), *named]
