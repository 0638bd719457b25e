"""`sigmazero certify`: how many changes a network is proved to withstand."""

from pathlib import Path
from typing import Annotated, Any

import typer

import sigmazero as sz
from sigmazero import data, models
from sigmazero.bench.constraints import Allowed
from sigmazero.bench.loader import Loader
from sigmazero.bench.plan import ModelSpec
from sigmazero.bench.proofs import certify_into, proof_key
from sigmazero.cli import options
from sigmazero.cli.console import say, show_path, tell
from sigmazero.core.files import same_file, writable

UpTo = Annotated[int, typer.Option("--up-to", metavar="T", help="Prove nothing about more changes than this.")]
Seconds = Annotated[
    float | None, typer.Option("--time-limit", metavar="S", help="Seconds of search for one input; none by default.")
]
ProofFile = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write lower, upper, x_adv and the rest to this .npz file."),
]
ProofStore = Annotated[
    Path | None,
    typer.Option("--store", metavar="STORE", help="Keep the proofs there, beside what attacks found; made if need be."),
]
Each = Annotated[bool, typer.Option("--each", help="A line for every input.")]
AttackFirst = Annotated[
    str, typer.Option("--attack", metavar="NAME", help="The attack that goes first; none for no attack.")
]
ArithmeticName = Annotated[
    str,
    typer.Option(
        "--arithmetic", metavar="KIND", help="float32: proofs hold for the model's own rounding too; or real."
    ),
]


def certify(
    model: options.ModelName,
    data_name: options.DataName,
    up_to: UpTo = 1,
    weights: options.WeightsFile = None,
    model_dir: options.ModelDir = None,
    data_dir: options.DataDir = None,
    normalize: options.MeanAndStd = None,
    bounds: options.BoxEnds = None,
    unit: options.UnitName = "feature",
    attack: AttackFirst = "sigma-swap",
    time_limit: Seconds = None,
    limit: options.Limit = None,
    rows: options.RowNumbers = None,
    seed: options.Seed = None,
    device: options.DeviceName = "auto",
    arithmetic: ArithmeticName = "float32",
    out: ProofFile = None,
    store: ProofStore = None,
    each: Each = False,
) -> None:
    """For each input, prove a lower bound on the number of changes that fool a network.

    With --store proofs are kept beside the attacks of a store, and appear in its tables and on its page. A run may be
    interrupted or killed: the same command goes on from the proofs that the store has.

    \b
    Example:
      sigmazero certify demo mnist-5k-heldout --limit 20
      sigmazero certify net.onnx mine.npz --up-to 2 --time-limit 60 --store proofs.db
      sigmazero certify demo mnist-5k-heldout --limit 20 --store runs/demo.db
    """
    if out is not None:
        _check_out(out, data_name, weights)
    counted, place = options.unit(unit), options.device(device)
    network = models.load(model, weights=weights, model_dir=model_dir, normalize=normalize, device=place)
    chosen = data.load(data_name, rows=rows, limit=limit, seed=seed, data_dir=data_dir)
    box = (0.0, 1.0) if bounds is None else bounds
    how: Any = {"up_to": up_to, "bounds": box, "time_limit": time_limit, "arithmetic": arithmetic, "progress": True}
    how["attack"] = None if attack == "none" else attack
    if store is None:
        images, labels = chosen.images.to(place), chosen.labels.to(place)
        found = sz.certify(network, images, labels, unit=counted, **how)
    else:
        spec, loader = ModelSpec(model, model, normalize=normalize), Loader(place, model_dir, data_dir)
        key = proof_key(network, counted, Allowed(bounds=box), chosen, spec)
        found, lost = certify_into(store, key, network, chosen, loader, **how)
        for line in lost:
            tell(line)
    if each:
        lines = zip(chosen.ids.tolist(), found.lower.tolist(), found.upper.tolist(), found.status, strict=True)
        for row, lower, upper, status in lines:
            say(f"{row}: at least {lower}, at most {upper:g}: {status}")
    say(found.table())
    if out is not None:
        found.save(out)
    for written in (out, store):
        if written is not None:
            show_path(written)


def _check_out(out: Path, data_name: str, weights: Path | None) -> None:
    """Refuse a file that is read, or cannot be written, before the work."""
    if out.suffix != ".npz":
        raise ValueError(f"--out {out} must end in .npz")
    for given in (data_name, weights):
        if given is not None and same_file(out, Path(given)):
            raise ValueError(f"--out {out} would write over what is read; name another file")
    writable(out)
