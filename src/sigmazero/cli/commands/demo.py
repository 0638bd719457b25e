"""`sigmazero demo`: bundled networks on real digits, or on a table of people; nothing to download."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import sigmazero as sz
from sigmazero.cli import console, output

BUNDLED = {False: ("mnist-5k-heldout", ("demo",)), True: ("adult-sample", ("adult-mlp", "adult-mlp-robust"))}
ATTACKS = {False: ("sigma-zero", "fmn", "vfga"), True: ("sigma-swap", "sigma-zero")}
NEXT = {
    False: {
        "sigmazero demo --tabular": "a table: what would have to change, by name and at what cost",
        "sigmazero attack net.py:build photos/": "a model and pictures of your own (docs/quickstart.md)",
        "sigmazero list attacks": "other attacks; add a name to read about one",
    },
    True: {
        "sigmazero space draft mine.csv": "a first description of a table of your own (docs/tables.md)",
        "sigmazero attack net.py:build mine.csv --attack sigma-swap": "then an attack on it",
    },
}


def demo(
    tabular: Annotated[bool, typer.Option("--tabular", help="A table of people instead of digits.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", help="How many digits, at most 1000, or people, 600.")] = 100,
    steps: Annotated[int, typer.Option(metavar="N", help="Steps of each attack.")] = 300,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the picture, the page and the store.")
    ] = Path("demo"),
) -> None:
    """Attack a bundled model and write a report.

    Three attacks compete on handwritten digits that the network was not trained on. With --tabular, attack two income
    classifiers, one of them adversarially trained; only some things about a person may change.

    \b
    Example:
      sigmazero demo --limit 20 -o demo/
      sigmazero demo --tabular
    """
    from sigmazero.bench.loader import Loader, clean_rows
    from sigmazero.data import load
    from sigmazero.report.figures import pictures, style
    from sigmazero.report.pages.page import make_page
    from sigmazero.report.pages.render import save_page
    from sigmazero.report.runs import load as load_runs
    from sigmazero.store.store import Store

    name, networks = BUNDLED[tabular]
    attacks, path = ATTACKS[tabular], out / f"{name}-{limit}-{steps}.db"  # a page has one choice of samples
    with one_thread(), console.warnings_as_lines():
        done = [
            sz.evaluate(network, name, attacks, store=path, limit=limit, steps=steps, progress=True)
            for network in networks
        ]
    rows = load(name, limit=limit)
    page, files = out / "report.html", [out / "report.html", path]
    result = done[0][attacks[0]]
    with Store(path) as opened:
        save_page(page, make_page(opened, partial(clean_rows, opened, loader=Loader())))
        output.show_attacks(load_runs(opened, [key for each in done for key in each.keys]))
    if tabular:
        console.echo(f"what {attacks[0]} changed to fool {networks[0]}:")
        output.show_changes(result, rows.space)
    else:
        picture = out / "demo.png"
        title = f"{attacks[0]} against the bundled network, {len(rows)} digits, {steps} steps"
        style.save(pictures.draw(result, rows.images, rows.labels, title=title, attack=attacks[0]), picture)
        files.insert(0, picture)
    console.wrote(*files)
    console.echo("next:")
    commands = NEXT[tabular] | {f"sigmazero view {path} --open": "this run in the browser, sample by sample"}
    for command, why in commands.items():
        console.echo(f"  {command:<{max(map(len, commands))}}  # {why}")


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread: networks this small gain little from more, which wait for each other on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
