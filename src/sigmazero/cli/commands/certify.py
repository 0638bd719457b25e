"""`sigmazero certify`: prove how many changes a model withstands."""

from __future__ import annotations

import tempfile
from pathlib import Path

import typer

from sigmazero.cli import console, inputs, options


def certify(
    model: options.ModelName,
    data: options.DataName,
    weights: options.Weights = None,
    normalize: options.Normalize = None,
    rows: options.RowNumbers = None,
    limit: options.Limit = None,
    up_to: options.UpTo = 1,
    time_limit: options.TimeLimit = None,
    attack: str = options.about_attack("sigma-swap", metavar="NAME", help="Attack to run first, or none."),
    unit: options.UnitName = "feature",
    bounds: options.Bounds = None,
    device: options.Device = "auto",
    store: options.KeepIn = None,
    each: bool = typer.Option(False, "--each", help="Print a line for every input."),
) -> None:
    """Prove how many changes are needed at least.

    With --store tables and pages show the proofs with the attacks. After Ctrl-C the same command goes on with the
    proofs and examples that were found.

    \b
    Example:
      sigmazero certify demo mnist-5k-heldout --limit 20
      sigmazero certify net.onnx mine.npz --up-to 2 --time-limit 60 --store proofs.db
      sigmazero certify demo mnist-5k-heldout --limit 20 --store runs/demo.db
    """
    from sigmazero.bench.constraints import Allowed
    from sigmazero.bench.loader import Loader
    from sigmazero.bench.proofs import certify_into, proof_key
    from sigmazero.models.wrapping import by_names

    spec = inputs.model_spec(model, weights, normalize, data)
    network = inputs.load_model(spec, device)
    chosen = by_names(inputs.load_rows(data, rows, limit, bounds), network)
    box = (0.0, 1.0) if bounds is None else bounds
    with tempfile.TemporaryDirectory() as folder:
        found, lost = certify_into(
            store or Path(folder) / "proofs.db",
            proof_key(network, unit, Allowed(bounds=box), chosen, spec),
            network,
            chosen,
            Loader(device),
            up_to=up_to,
            bounds=box,
            time_limit=time_limit,
            attack=None if attack == "none" else attack,
            progress=True,
        )
    for line in lost:
        console.warn(line)
    if each:
        lines = zip(chosen.ids.tolist(), found.lower.tolist(), found.upper.tolist(), found.status, strict=True)
        for row, lower, upper, status in lines:
            console.echo(f"{row}: at least {lower}, at most {upper:g}: {status}")
    console.echo(found.table())
    if store is not None:
        console.wrote(store)
