"""`sigmazero demo`: bundled networks on real digits, or on a table of people; nothing to download."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer

import sigmazero as sz
from sigmazero.bench.cells import Cell, expand
from sigmazero.bench.loader import Loader, clean_rows
from sigmazero.bench.plan import DataSpec, ModelSpec, Question
from sigmazero.bench.run import execute
from sigmazero.cli import console, options
from sigmazero.cli.allowed import show_changes
from sigmazero.cli.console import INTERRUPTED
from sigmazero.data import Rows
from sigmazero.report.figures.pictures import save_picture
from sigmazero.report.formats import result_row, rich_table
from sigmazero.report.pages.page import make_page
from sigmazero.report.pages.render import save_page
from sigmazero.report.runs import Clean, by_cost, load, table_ks
from sigmazero.store.store import Store, WriterLock

BESIDE = ("sigma-zero", "fmn", "vfga")
ON_TABLE = ("sigma-swap", "sigma-zero")
NETWORKS: tuple[str, ...] = ("adult-mlp", "adult-mlp-robust")
BUDGET = 24  # of attacks that need one
NEXT = {
    "sigmazero demo --tabular": "a table: what would have to change, by name and at what cost",
    "sigmazero attack --model net.py:build --data photos/": "a model and pictures of your own (docs/quickstart.md)",
    "sigmazero list attacks": "other attacks; add a name to read about one",
}
NEXT_TABLE = {
    "sigmazero space draft mine.csv": "a first description of a table of your own (docs/tables.md)",
    "sigmazero attack --model net.py:build --data mine.csv --attack sigma-swap": "then an attack on it",
}
MARK = "demo"  # in the description of a cell, says that the store is ours to remove


def demo(
    tabular: Annotated[bool, typer.Option("--tabular", help="A table of people instead of digits.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", help="How many digits, at most 1000, or people, 600.")] = 100,
    steps: Annotated[int, typer.Option(metavar="N", help="Steps of each attack.")] = 300,
    attack_name: options.AttackName = "sigma-zero",
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the picture, the page and the store.")] = Path(
        "demo"
    ),
    device: options.DeviceName = "auto",
    seed: Annotated[int, typer.Option(metavar="N", help="For the choice of digits and for random attacks.")] = 0,
) -> None:
    """Attack the bundled network on handwritten digits that it was not trained on, and show what changed.

    The attack is compared with two others. The picture is about it alone, the page about all three. With --tabular the
    networks are two that guess from a census who earns much, one of them trained against changes, and only some things
    about a person may change.

    \b
    Example:
      sigmazero demo --limit 20 --out demo/
      sigmazero demo --tabular
    """
    if tabular:
        names, networks = list(dict.fromkeys([*ON_TABLE, attack_name])), NETWORKS
        chosen = DataSpec("people", "adult-sample", limit=limit, seed=seed)
    else:
        names, networks = list(dict.fromkeys([attack_name, *BESIDE]))[: len(BESIDE)], ("demo",)
        chosen = DataSpec("digits", "mnist-5k-heldout", limit=limit, seed=seed)
    questions = [_question(network, name, chosen, steps, seed) for network in networks for name in names]
    loader, path = Loader(options.device(device)), out / "demo.db"
    cells, missing = expand(questions, loader)
    if missing:
        raise missing[0].error
    cells = [replace(cell, info=replace(cell.info, origin={**cell.info.origin, MARK: True})) for cell in cells]
    remove(path)
    with Store(path, write=True) as store:
        run(cells, store, loader)
        (show_table if tabular else show)(
            cells, store, loader.rows(chosen), out, steps, partial(clean_rows, store, loader=loader)
        )


def _question(network: str, name: str, chosen: DataSpec, steps: int, seed: int) -> Question:
    attack = sz.get(name, steps=steps)
    budget = BUDGET if attack.kind == "budget" else None
    return Question(ModelSpec(network, network), chosen, name, attack, budget=budget, seed=seed)


def remove(path: Path) -> None:
    """Remove the store of an earlier demo, which may have had other digits or steps; any other is refused."""
    if not path.exists():
        return
    with closing(WriterLock(path, 0)):  # so that no demo loses its store while it runs
        with Store(path) as held:
            if not all(info.origin.get(MARK) for info in held.cells()):
                raise ValueError(f"{path} is the store of another run; name another folder with --out, or remove it")
        path.unlink()


def run(cells: list[Cell], store: Store, loader: Loader) -> None:
    """Run the attacks into the store."""
    with _one_thread():
        report = execute(cells, store, loader, title="demo", progress=True)
    if report.interrupted:
        raise typer.Exit(INTERRUPTED)
    for error in report.failed.values():
        raise RuntimeError(error)


def show(cells: list[Cell], store: Store, rows: Rows, out: Path, steps: int, clean: Clean) -> None:
    """Draw the first attack, make the page, and print the figures of all attacks."""
    results = {cell.info.attack: store.facts(cell.info.key).to_result(rows.images, cell.info) for cell in cells}
    *others, last = results
    against = f"against the bundled network, {len(rows)} digits, {steps} steps"
    first, picture, page = next(iter(results)), out / "demo.png", out / "report.html"
    save_picture(picture, results[first], rows.images, rows.labels, title=f"{first} {against}", attack=first)
    save_page(page, make_page(store, clean))
    console.say(f"{', '.join(others)} and {last} {against}", style="bold")
    ks = table_ks(load(store))
    table = [{"attack": name, **result_row(result, rows.labels, ks)} for name, result in results.items()]
    console.out().print(rich_table(table, down=True))
    console.show_path(picture)
    console.show_path(page)
    suggest(NEXT | {f"sigmazero view {store.path} --open": "this run in the browser, sample by sample"})


def show_table(cells: list[Cell], store: Store, rows: Rows, out: Path, steps: int, clean: Clean) -> None:
    """Make the page, and print the figures of all networks and attacks and the first changes in words."""
    page, first = out / "report.html", cells[0].info
    save_page(page, make_page(store, clean))
    runs = load(store)
    ks, priced = table_ks(runs), by_cost(runs)
    costs = table_ks(priced) if priced else ()
    results = [store.facts(cell.info.key).to_result(rows.images, cell.info) for cell in cells]
    console.say(f"{len(rows)} people of a census, {steps} steps", style="bold")
    table = [
        {"network": cell.info.model, "attack": cell.info.attack, **result_row(result, rows.labels, ks, costs)}
        for cell, result in zip(cells, results, strict=True)
    ]
    console.out().print(rich_table(table, down=True))
    console.say(f"what {first.attack} changed to fool {first.model}:")
    show_changes(results[0], rows, rows.space)
    console.show_path(page)
    suggest(NEXT_TABLE)


def suggest(commands: dict[str, str]) -> None:
    """Say what to try next."""
    console.say("next:")
    width = max(map(len, commands))
    for command, why in commands.items():
        console.say(f"  {command:<{width}}  # {why}")


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread: a network this small gains little from more, which wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
