"""`sigmazero export`: a store as one flat file."""

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from sigmazero.cli import console, options

Out = Annotated[
    Path,
    typer.Option("--out", "-o", metavar="FILE", help="Ends in .csv, .jsonl, .parquet or .npz; - prints CSV."),
]
Changes = Annotated[bool, typer.Option("--perturbations", help="Also which features changed, and what they became.")]
AttackName = Annotated[
    str | None, typer.Option("--attack", metavar="NAME", help="With .npz: the attack, where there are several.")
]


def export(store: options.StoreFile, out: Out, perturbations: Changes = False, attack: AttackName = None) -> None:
    """Write samples to csv, jsonl, parquet or npz.

    An .npz file holds the result of one attack with its adversarial inputs, as `Result.save` writes it; the others hold
    a line per sample.

    \b
    Example:
      sigmazero export runs/small.db -o small.csv
      sigmazero export runs/mine.db --attack sigma-zero -o mine.npz
    """
    import sigmazero as sz
    from sigmazero.store import export as formats
    from sigmazero.store.store import Store

    if out.suffix == ".npz":
        found = sz.Evaluation.load(store)
        if attack is None and len(found) != 1:
            raise ValueError(f"{out} holds the arrays of one attack; name it with --attack: {', '.join(found)}")
        found[next(iter(found)) if attack is None else attack].save(out)
        console.wrote(out)
        return
    if attack is not None:
        raise ValueError(f"--attack {attack} goes with a file that ends in .npz; other files hold every attack")
    with Store(store) as opened:
        if str(out) == "-":
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "samples.csv"
                formats.export(opened, path, "csv", perturbations)
                sys.stdout.write(path.read_text(encoding="utf-8"))
            return
        formats.export(opened, out, formats.known(out.suffix.removeprefix(".") or "csv"), perturbations)
    console.wrote(out)
