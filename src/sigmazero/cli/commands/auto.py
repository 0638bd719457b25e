"""`sigmazero auto`: a cascade of attacks, for a figure one can rely on, and a gate for pipelines."""

from pathlib import Path
from typing import Annotated, Any

import typer

import sigmazero as sz
from sigmazero import models
from sigmazero.auto.judge import identify, judge
from sigmazero.auto.proofs import recall_bounds
from sigmazero.bench.plan import ModelSpec
from sigmazero.cli import findings, gate, options
from sigmazero.cli.allowed import allowed
from sigmazero.cli.rows import load_rows

Eps = Annotated[int | None, typer.Option(metavar="K", help="Changes allowed; without it, as few as possible.")]
VersionName = Annotated[str, typer.Option("--version", metavar="NAME", help="standard, quick, or rand.")]
StoreFile = Annotated[
    Path | None,
    typer.Option("--store", metavar="FILE", help="Keep the evaluation in this store and go on where it stopped."),
]


def auto(
    model: options.ModelName,
    data_name: options.DataName,
    weights: options.WeightsFile = None,
    model_dir: options.ModelDir = None,
    data_dir: options.DataDir = None,
    normalize: options.MeanAndStd = None,
    space: options.SpaceFile = None,
    bounds: options.BoxEnds = None,
    mask: options.MaskFile = None,
    eps: Eps = None,
    version: VersionName = "standard",
    unit: options.UnitName = "feature",
    limit: options.Limit = None,
    rows: options.RowNumbers = None,
    seed: options.Seed = None,
    batch_size: options.BatchSize = None,
    device: options.DeviceName = "auto",
    precision: options.PrecisionName = None,
    store: StoreFile = None,
    out: options.OutPath = None,
    no_doctor: options.NoDoctor = False,
    fail_under: gate.FailUnder = None,
    lower_end: gate.LowerEnd = False,
    claimed: findings.Claimed = None,
    allow: findings.Allow = None,
    complete: gate.Complete = False,
    dry_run: gate.CostOnly = False,
    json: gate.JsonFile = None,
    markdown: gate.MarkdownFile = None,
    proofs: gate.ProofsStore = None,
    quiet: gate.Quiet = False,
) -> None:
    """Measure robust accuracy with several strong attacks, each on what the ones before it could not fool.

    Exit code 1: below --fail-under; 2: a mistake in the command; 3: the checks of the model found errors, so that a
    high figure means little.

    \b
    Example:
      sigmazero auto --model net.py:build --weights net.pt --data mine.npz --eps 24
      sigmazero auto M1 mnist --limit 1000 --eps 24 --fail-under 60 --json gate.json --quiet
    """
    at_least = gate.share(fail_under, eps, lower_end)
    read: Any = {"data": data_name, "weights": weights, "store": store, "space": space, "mask": mask}
    files = gate.files(out, json, markdown, model, read)
    counted, place, size = options.unit(unit), options.device(device), 250 if batch_size is None else batch_size
    network = models.load(model, weights=weights, model_dir=model_dir, normalize=normalize, device=place)
    chosen = load_rows(data_name, rows, limit, seed, data_dir)
    may = allowed(chosen, space, bounds, mask)
    how: Any = {"device": place, "unit": counted, "precision": options.precision(precision), "verbose": not quiet}
    how |= {"bounds": may.bounds, "mask": may.mask, "space": may.space}
    adversary = sz.SparseAutoAttack(network, "L0", eps, seed, version=version, **how)
    adversary.pose(chosen.images, chosen.labels)  # refuse inputs outside their space here, not after an hour
    spec = ModelSpec(model, model, normalize=normalize)
    least = None if proofs is None else recall_bounds(proofs, adversary, chosen, spec)
    if dry_run:
        gate.show_estimate(adversary, chosen, table=True)
        return
    claim = findings.claim(model, claimed)
    how = {"at_least": at_least, "lower_end": lower_end, "allow": allow or (), "least": least, "complete": complete}
    how |= {"batch_size": size, "store": store, "progress": not quiet}
    with gate.keeping(store):
        found = [] if no_doctor else adversary.examine(chosen.images, chosen.labels, claim)
        gate.show_doctor(found, allow or (), quiet)
        if not quiet:
            gate.show_estimate(adversary, chosen, table=False)
        verdict = judge(adversary, chosen, identify(adversary.model, model, spec), found, **how)
    gate.end(verdict, adversary, chosen, files, quiet)
