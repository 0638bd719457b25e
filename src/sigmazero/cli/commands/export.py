"""`sigmazero export`: write the samples of a store to a file."""

import sys
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
    attack: str | None = typer.Option(
        None, "--attack", metavar="NAME", help="The attack to write to .npz, if there are several."
    ),
    table: Path | None = typer.Option(
        None,
        "--table",
        metavar="FILE",
        help="The table of the samples: write row, field, before, after and cost of each change.",
    ),
) -> None:
    """Write samples to csv, jsonl, parquet or npz.

    An .npz file holds the result of one attack with its adversarial inputs, as `Result.save` writes it. Other files
    have a line for each sample, or with --table a line for each changed field of every fooled row.

    \b
    Example:
      sigmazero export runs/small.db -o small.csv
      sigmazero export runs/mine.db --attack sigma-zero -o mine.npz
      sigmazero export runs/loans.db --table loans.csv -o changes.csv
    """
    import sigmazero as sz
    from sigmazero.store.export import export as write
    from sigmazero.store.store import Store

    if table is not None:
        if out.suffix != ".csv" or perturbations or attack is not None:
            raise ValueError(f"--table {table} needs a file that ends in .csv, and no other option")
        _fields(store, table).to_csv(out, index=False)
        console.wrote(out)
        return
    if out.suffix == ".npz":
        found = sz.Evaluation.load(store)
        if attack is None and len(found) != 1:
            raise ValueError(f"{out} can hold one attack; choose it with --attack: {', '.join(found)}")
        found[next(iter(found)) if attack is None else attack].save(out)
        console.wrote(out)
        return
    if attack is not None:
        raise ValueError(f"--attack {attack} needs a file that ends in .npz; other files hold every attack")
    with Store(store) as opened:
        if str(out) == "-":
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "samples.csv"
                write(opened, path, perturbations)
                sys.stdout.write(path.read_text(encoding="utf-8"))
            return
        write(opened, out, perturbations)
    console.wrote(out)


def _fields(store: Path, path: Path) -> Any:
    """Return a data frame with a line for each changed field of the fooled samples, attack by attack."""
    import pandas

    import sigmazero as sz
    from sigmazero.data.table import Table

    table, rows = Table.read(path), sz.data.load(str(path))
    places = {number: place for place, number in enumerate(rows.ids.tolist())}
    frames, found = [], sz.Evaluation.load(store)
    for name in found:
        result = found[name]
        fooled = result.take(result.success.nonzero().squeeze(1))
        if unknown := [number for number in fooled.ids.tolist() if number not in places]:
            raise ValueError(f"{path} has no row {unknown[0]}, but {store} has; name the table that was attacked")
        clean = rows.images[[places[number] for number in fooled.ids.tolist()]]
        frame = table.changes(clean, fooled.x_adv, fooled.ids)
        frame.insert(0, "attack", name)
        frames.append(frame)
    return pandas.concat(frames, ignore_index=True)
