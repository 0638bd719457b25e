"""`sigmazero export`: write the samples of a store to a file."""

import tempfile
from pathlib import Path
from typing import Any

import typer

from sigmazero.cli import console, options


def export(
    store: options.StoreFile,
    out: Path = typer.Option(
        ..., "--out", "-o", metavar="FILE", help="Ends in .csv, .jsonl, .parquet or .npz; - prints CSV."
    ),
    perturbations: bool = typer.Option(False, "--perturbations", help="Add the changed features and their new values."),
    attack: str | None = typer.Option(None, metavar="NAME", help="The attack to write to .npz, if there are several."),
    fields: Path | None = typer.Option(
        None, metavar="TABLE", help="The table that was attacked: write each changed field, before and after, as CSV."
    ),
) -> None:
    """Write samples to csv, jsonl, parquet or npz.

    An .npz file holds the result of one attack with its adversarial inputs, as `Result.save` writes it. Other files
    have a line for each sample, or with --fields a line for each changed field of every fooled row.

    
    Example:
      sigmazero export runs/small.db -o small.csv
      sigmazero export runs/mine.db --attack sigma-zero -o mine.npz
      sigmazero export runs/loans.db --fields loans.csv -o changes.csv
    """
    import sigmazero as sz
    from sigmazero.store.export import export as write
    from sigmazero.store.store import Store

    if attack is not None and out.suffix != ".npz":
        raise ValueError(f"--attack {attack} needs a file that ends in .npz; other files hold every attack")
    if fields is not None:
        if out.suffix != ".csv" or perturbations:
            raise ValueError(f"--fields {fields} needs a file that ends in .csv, and no other option")
        _changes(store, fields).to_csv(out, index=False)
    elif out.suffix == ".npz":
        found = sz.Evaluation.load(store)
        if attack is None and len(found) != 1:
            raise ValueError(f"{out} can hold one attack; choose it with --attack: {', '.join(found)}")
        found[next(iter(found)) if attack is None else attack].save(out)
    elif str(out) == "-":
        with Store(store) as opened, tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "samples.csv"
            write(opened, path, perturbations)
            typer.echo(path.read_text(encoding="utf-8"), nl=False)
        return
    else:
        with Store(store) as opened:
            write(opened, out, perturbations)
    console.wrote(out)


def _changes(store: Path, path: Path) -> Any:
    """Return a data frame with a line for each changed field of the fooled samples, attack by attack."""
    import pandas

    import sigmazero as sz

    table, found, frames = sz.data.Table.read(path), sz.Evaluation.load(store), []
    for name in found:
        result = found[name]
        frame = result.take(result.success.nonzero().squeeze(1)).to_pandas(table)
        frame.insert(0, "attack", name)
        frames.append(frame)
    return pandas.concat(frames, ignore_index=True)
