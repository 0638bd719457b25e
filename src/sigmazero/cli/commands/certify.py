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
    attack: str = options.about_attack(
        "sigma-swap", metavar="NAME", help="Attack that looks for examples first; none leaves it out."
    ),
    unit: options.UnitName = "feature",
    bounds: options.Bounds = None,
    device: options.Device = "auto",
    store: options.KeepIn = None,
    each: bool = typer.Option(False, "--each", help="Print a line for every row, named by its id in the data set."),
) -> None:
    """Prove how many changes are needed at least.

    An attack looks for examples first; --time-limit does not count it, and --attack none leaves it out. With --store
    tables and pages show the proofs with the attacks, and after Ctrl-C the same command goes on with the proofs and
    examples that were found.

    \b
    Example:
      sigmazero certify demo mnist-5k-heldout --limit 20
      sigmazero certify net.onnx mine.npz --up-to 2 --time-limit 60 --store proofs.db
      sigmazero certify demo mnist-5k-heldout --limit 20 --store runs/demo.db
    """
    from sigmazero.bench.constraints import Allowed
    from sigmazero.bench.loader import Loader
    from sigmazero.bench.proofs import certify_into, proof_key, recalled
    from sigmazero.models.wrapping import by_names

    spec = inputs.model_spec(model, weights, normalize, data)
    network = inputs.load_model(spec, device)
    chosen = by_names(inputs.load_rows(data, rows, limit, bounds), network)
    box = (0.0, 1.0) if bounds is None else bounds
    key = proof_key(network, unit, Allowed(bounds=box), chosen, spec)
    try:
        with tempfile.TemporaryDirectory() as folder:
            found, lost = certify_into(
                store or Path(folder) / "proofs.db",
                key,
                network,
                chosen,
                Loader(device),
                up_to=up_to,
                bounds=box,
                time_limit=time_limit,
                attack=None if attack == "none" else attack,
                progress=True,
            )
    except KeyboardInterrupt:
        if store is None:
            console.warn("stopped; nothing was kept. --store FILE keeps proofs and examples, and goes on from them")
        else:
            stored = sum(proof is not None for proof in recalled(store, key, chosen, None))
            console.warn(
                f"stopped; bounds of {stored} of {len(chosen)} rows stored in {store}. To go on: {console.again()}"
            )
        raise
    for line in lost:
        console.warn(line)
    if each:
        console.echo(f"rows of {chosen.name}, by their ids:")
        lines = zip(chosen.ids.tolist(), found.lower.tolist(), found.upper.tolist(), found.status, strict=True)
        for row, lower, upper, status in lines:
            console.echo(f"row {row}: at least {lower}, at most {upper:g}: {status}")
    console.echo(found.table())
    if store is not None:
        console.wrote(store)
