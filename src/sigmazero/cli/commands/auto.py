"""`sigmazero auto`: a cascade of attacks, for a figure one can rely on, and a gate for pipelines."""

from pathlib import Path
from typing import Annotated, Any

import typer

import sigmazero as sz
from sigmazero import models
from sigmazero.auto.bounds import GateProofs
from sigmazero.auto.gating import examined
from sigmazero.bench.plan import ModelSpec
from sigmazero.cli import findings, gate, options
from sigmazero.cli.allowed import allowed
from sigmazero.cli.rows import load_rows

Eps = Annotated[int | None, typer.Option(metavar="K", help="Changes allowed; without it, as few as possible.")]
VersionName = Annotated[str, typer.Option("--version", metavar="NAME", help="standard or quick.")]
State = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Keep the evaluation in this file and go on where it stopped.")
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
    state: State = None,
    out: options.OutPath = None,
    no_doctor: options.NoDoctor = False,
    fail_under: gate.FailUnder = None,
    claimed: findings.Claimed = None,
    allow: findings.Allow = None,
    complete: gate.Complete = False,
    dry_run: gate.CostOnly = False,
    json: gate.JsonFile = None,
    junit: gate.JunitFile = None,
    markdown: gate.MarkdownFile = None,
    proofs: gate.ProofsStore = None,
    certify: gate.CertifySeconds = None,
    quiet: gate.Quiet = False,
) -> None:
    """Measure robust accuracy with several strong attacks, each on what the ones before it could not fool.

    Exit code 1: below --fail-under; 2: a mistake in the command; 3: findings that forbid to believe the figure.

    \b
    Example:
      sigmazero auto --model net.py:build --weights net.pt --data mine.npz --eps 24
      sigmazero auto M1 mnist --limit 1000 --eps 24 --fail-under 60 --json gate.json --quiet
    """
    wanted = gate.terms(fail_under, allow, complete)
    read: Any = {"data": data_name, "weights": weights, "state": state, "space": space, "mask": mask}
    files = gate.files(out, json, junit, markdown, model, read)
    counted, place, size = options.unit(unit), options.device(device), 250 if batch_size is None else batch_size
    network = models.load(model, weights=weights, model_dir=model_dir, normalize=normalize, device=place)
    chosen = load_rows(data_name, rows, limit, seed, data_dir)
    may = allowed(chosen, space, bounds, mask)
    how: Any = {"device": place, "unit": counted, "precision": options.precision(precision), "verbose": not quiet}
    how |= {"bounds": may.bounds, "mask": may.mask, "space": may.space}
    cascade = sz.SparseAutoAttack(network, "L0", eps, seed, version=version, **how)
    bound = GateProofs(proofs, certify, ModelSpec(model, model, normalize=normalize))
    gate.check(cascade, chosen, wanted, bound)
    if dry_run:
        gate.show_estimate(cascade, chosen, table=True)
        return
    found = [] if no_doctor else examined(cascade, chosen, findings.claim(model, claimed))
    gate.run_gate(cascade, chosen, model, wanted, found, files, bound, quiet=quiet, batch_size=size, state=state)
