"""`sigmazero certify`: how many changes a network is proved to withstand."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sigmazero.cli import console, inputs, options

UpTo = Annotated[
    int,
    options.about_attack("--up-to", metavar="N", help="Prove nothing about more changes than this."),
]
Seconds = Annotated[
    float | None,
    options.about_attack("--time-limit", metavar="SECONDS", help="Of search for one input; none by default."),
]
AttackFirst = Annotated[
    str,
    options.about_attack("--attack", metavar="NAME", help="The attack that goes first; none for no attack."),
]
Arithmetic = Annotated[
    Literal["float32", "real"],
    options.about_attack("--arithmetic", help="float32: proofs hold for the model's own rounding too."),
]
Each = Annotated[bool, typer.Option("--each", help="A line for every input.")]


def certify(
    model: options.ModelName,
    data: options.DataName,
    weights: options.Weights = None,
    normalize: options.Normalize = None,
    rows: options.RowNumbers = None,
    limit: options.Limit = None,
    shuffle: options.Shuffle = None,
    up_to: UpTo = 1,
    time_limit: Seconds = None,
    attack: AttackFirst = "sigma-swap",
    arithmetic: Arithmetic = "float32",
    unit: options.UnitName = "feature",
    bounds: options.Bounds = None,
    device: options.Device = "auto",
    store: options.KeepIn = None,
    each: Each = False,
) -> None:
    """Prove how many changes are needed at least.

    With --store the proofs stand beside what attacks found, in its tables and on its page; rows that are proved there
    are left out, so the same command goes on after an interruption.

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

    where, spec = inputs.device(device), inputs.model_spec(model, weights, normalize, data)
    network = inputs.load_model(spec, where)
    chosen = by_names(inputs.load_rows(data, rows, limit, shuffle, bounds), network)
    box = (0.0, 1.0) if bounds is None else bounds
    how: dict[str, Any] = {"up_to": up_to, "bounds": box, "time_limit": time_limit, "arithmetic": arithmetic}
    how["progress"] = True
    how["attack"] = None if attack == "none" else attack
    key = proof_key(network, unit, Allowed(bounds=box), chosen, spec)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proofs.db" if store is None else store
        found, lost = certify_into(path, key, network, chosen, Loader(where), **how)
    for line in lost:
        console.warn(line)
    if each:
        lines = zip(chosen.ids.tolist(), found.lower.tolist(), found.upper.tolist(), found.status, strict=True)
        for row, lower, upper, status in lines:
            console.echo(f"{row}: at least {lower}, at most {upper:g}: {status}")
    console.echo(found.table())
    if store is not None:
        console.wrote(store)
