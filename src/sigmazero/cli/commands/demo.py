"""`sigmazero demo`: attack bundled models on digits or on a table of people; nothing to download."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer

import sigmazero as sz
from sigmazero.cli import console, output

BUNDLED = {False: ("mnist-5k-heldout", ("demo",)), True: ("adult-sample", ("adult-mlp", "adult-mlp-robust"))}
ATTACKS = {False: ("sigma-zero", "fmn", "vfga"), True: ("sigma-swap", "sigma-zero")}
NEXT = {
    False: {
        "sigmazero demo --tabular": "a table: the changes by name, and their cost",
        "sigmazero attack net.py:build photos/": "your own model and pictures (docs/own-model.md)",
        "sigmazero list attacks": "other attacks; add a name to read more",
    },
    True: {
        "sigmazero space draft mine.csv": "describe a table of your own (docs/tables.md)",
        "sigmazero attack net.py:build mine.csv --attack sigma-swap": "then attack it",
    },
}


def demo(
    tabular: bool = typer.Option(False, "--tabular", help="Attack two income classifiers instead of digits."),
    limit: int = typer.Option(100, metavar="N", help="Number of digits (at most 1000) or people (at most 600)."),
    steps: int = typer.Option(300, metavar="N", help="Steps of each attack."),
    out: Path = typer.Option(
        Path("demo"), "--out", "-o", metavar="DIR", help="Folder for the picture, the report and the store."
    ),
) -> None:
    """Attack a bundled model and write a report.

    Three attacks are compared on handwritten digits that the model was not trained on. With --tabular two income
    classifiers are attacked, one of them adversarially trained; only some facts about a person may change.

    \b
    Example:
      sigmazero demo --limit 20 -o demo/
      sigmazero demo --tabular
    """
    import torch

    from sigmazero.bench.loader import Loader, clean_rows
    from sigmazero.data import load
    from sigmazero.report.figures import pictures, style
    from sigmazero.report.pages.page import make_page
    from sigmazero.report.runs import load as load_runs
    from sigmazero.store.store import Store

    name, networks = BUNDLED[tabular]
    attacks, path = ATTACKS[tabular], out / f"{name}-{limit}-{steps}.db"  # a page has one choice of samples
    torch.set_num_threads(1)  # models this small gain little from more, which wait for each other on a busy machine
    with console.warnings_as_lines():
        done = [
            sz.evaluate(network, name, attacks, store=path, limit=limit, steps=steps, progress=True)
            for network in networks
        ]
    rows = load(name, limit=limit)
    page, files = out / "report.html", [out / "report.html", path]
    result = done[0][attacks[0]]
    with Store(path) as opened:
        output.write_text(make_page(opened, partial(clean_rows, opened, loader=Loader())), page)
        output.show_attacks(load_runs(opened, [key for each in done for key in each.keys]))
    if tabular:
        console.echo(f"changes by {attacks[0]} that fool {networks[0]}:")
        output.show_changes(result, rows.space, path)
    else:
        picture = out / "demo.png"
        title = f"{attacks[0]} against the bundled network, {len(rows)} digits, {steps} steps"
        style.save(pictures.draw(result, rows.images, rows.labels, title=title, attack=attacks[0]), picture)
        files.insert(0, picture)
    console.wrote(*files)
    console.echo("next:")
    commands = NEXT[tabular] | {f"sigmazero view {path} --open": "the results in the browser, sample by sample"}
    for command, why in commands.items():
        console.echo(f"  {command:<{max(map(len, commands))}}  # {why}")
