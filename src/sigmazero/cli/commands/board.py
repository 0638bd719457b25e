"""`sigmazero board`: a leaderboard whose numbers can be replayed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import sigmazero as sz
from sigmazero.cli import console, inputs, options
from sigmazero.cli.console import echo, warn, wrote

if TYPE_CHECKING:
    from sigmazero.board.change import Change

app = typer.Typer(**options.GROUP)
Folder = Annotated[Path, typer.Argument(metavar="BOARD", help="The leaderboard's folder.")]
By = Annotated[str, typer.Option("--by", metavar="NAME", help="Who found the examples; shown beside them.")]


@app.callback()
def top() -> None:
    """Keep a leaderboard as a folder: every number in it is an attack that can be replayed.

    \b
    Example:
      sigmazero board example my-board
      sigmazero board verify my-board
    """


@app.command()
def init(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The board's name, such as mnist-pixels.")],
    data: options.DataName,
    limit: options.Limit = None,
    unit: options.UnitName = "feature",
    k: options.Ks = None,
) -> None:
    """Make a leaderboard, or add a board to one: fixed rows, and what counts as one change.

    \b
    Example:
      sigmazero board init my-board mnist mnist --limit 1000
      sigmazero board init my-board cifar10-pixels cifar10 --limit 1000 --unit pixel
    """
    from sigmazero.bench.plan import DataSpec
    from sigmazero.board.folder import KS, new_board

    ks = sorted({int(each) for each in inputs.numbers(k) or KS})
    made = new_board(folder, name, DataSpec(name, data, limit=limit), unit, ks)
    echo(f"board {name}: {len(made)} rows, sha256 {made.content_hash}")


@app.command()
def add(
    folder: Folder,
    card: Annotated[Path, typer.Argument(metavar="CARD", help="The model's card, a TOML file.")],
    by: By,
    stores: list[Path] | None = typer.Option(
        None, "--from", metavar="STORE", help="Also take the examples in this store (repeatable)."
    ),
    cascade: Literal["standard", "quick", "none"] = typer.Option("standard", help="List of attacks."),
    allow: options.Allow = None,
    trust_code: options.TrustCode = False,
) -> None:
    """Add a model by its card: it is examined and attacked by SparseAutoAttack, and every example is replayed.

    Adding a model again gives it a new card and keeps its examples.

    \b
    Example:
      sigmazero board add my-board cards/mine.toml --by "Ada Lovelace"
    """
    done = sz.board.add(
        sz.board.Leaderboard(folder),
        card,
        inputs.loader(trust_code),
        by=by,
        stores=stores or (),
        version=None if cascade == "none" else cascade,
        allow=allow or (),
    )
    echo(f"{card} is added")
    show_changes(done)


@app.command()
def submit(
    folder: Folder,
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A store, or an .npz file with x_adv and ids.")],
    by: By,
    tool: str | None = typer.Option(
        None, metavar="NAME", help="The tool that found them; by default the attacks in the store."
    ),
    entry: str | None = typer.Option(
        None, metavar="NAME", help="The model they fool; by default found by its weights' hash."
    ),
    trust_code: options.TrustCode = False,
) -> None:
    """Submit adversarial examples, found with any tool; each sample keeps the one with the fewest changes.

    Every example is replayed, and the name of its finder is kept. Exit code 1 if no sample was lowered.

    \b
    Example:
      sigmazero board submit my-board runs/mine.db --by "Ada Lovelace"
      sigmazero board submit my-board points.npz --entry demo --by "Ada Lovelace" --tool "my attack"
    """
    loader = inputs.loader(trust_code)
    done = sz.board.submit(sz.board.Leaderboard(folder), store, loader, by=by, tool=tool, entry=entry)
    show_changes(done)
    if not any(change.lowered for change in done):
        raise typer.Exit(1)


@app.command()
def prove(
    folder: Folder,
    entry: Annotated[str, typer.Argument(metavar="NAME", help="The model, by the name on its card.")],
    up_to: options.UpTo = 1,
    time_limit: options.TimeLimit = None,
    source: Path | None = typer.Option(
        None, "--from", metavar="STORE", help="Take the proofs in this store; they count as not checked."
    ),
    trust_code: options.TrustCode = False,
) -> None:
    """Prove lower bounds for a model, so that its rows are intervals.

    A bound that an example contradicts is refused. Exit code 1 if no bound was raised.

    \b
    Example:
      sigmazero board prove my-board demo --up-to 1 --time-limit 60
    """
    from sigmazero.report.formats import count

    loader = inputs.loader(trust_code)
    done = sz.board.prove(
        sz.board.Leaderboard(folder), entry, loader, up_to=up_to, time_limit=time_limit, source=source
    )
    for each in done:
        raised = f"{count(len(each.rows), 'bound')} raised"
        echo(f"board {each.board}: {raised}, {each.exact} of {count(each.of, 'sample')} known exactly")
    if not any(each.rows for each in done):
        raise typer.Exit(1)


@app.command()
def verify(
    folder: Folder,
    again: float | None = typer.Option(
        None, metavar="SECONDS", help="Also prove every lower bound again, in at most this time each."
    ),
    trust_code: options.TrustCode = False,
) -> None:
    """Check every card, hash and row, and replay every example, in strict fp32 and in torch's default settings.

    Names the file of everything that is wrong. Exit code 1 if anything is, or could not be checked.

    \b
    Example:
      sigmazero board verify my-board
    """
    from sigmazero.report.formats import count

    verdict = sz.board.verify(sz.board.Leaderboard(folder), inputs.loader(trust_code), again)
    wrong = [*verdict.wrong, *verdict.skipped]
    console.warn_of(wrong)
    claims = f", {count(verdict.unchecked, 'lower bound')} not proved here" if verdict.unchecked else ""
    checked = f"{count(verdict.entries, 'model')}, {count(verdict.points, 'point')} replayed{claims}"
    echo(f"{checked}: {len(verdict.wrong)} wrong, {len(verdict.skipped)} not checked")
    if wrong:
        raise typer.Exit(1)


@app.command()
def site(
    folder: Folder,
    out: Path = typer.Option(..., "--out", "-o", metavar="DIR", help="Where the site goes."),
) -> None:
    """Write the leaderboard as pages that need no server. No model is loaded and no code runs.

    \b
    Example:
      sigmazero board site my-board --out site
    """
    sz.board.write_board(sz.board.Leaderboard(folder), out)
    wrote(out / "index.html")


@app.command()
def example(
    folder: Folder,
    limit: int = typer.Option(20, metavar="N", help="Rows of each board."),
) -> None:
    """Build a leaderboard and its site with the bundled models, and with known models whose weights are here.

    \b
    Example:
      sigmazero board example my-board --limit 100
    """
    from sigmazero.board.example import build_example

    loader = inputs.loader(False)
    for line in build_example(folder, loader, rows=limit):
        warn(line)
    sz.board.write_board(sz.board.Leaderboard(folder), folder / "site", loader)
    wrote(folder / "site" / "index.html")


def show_changes(done: Sequence[Change]) -> None:
    """Print how many samples were lowered, a line per board."""
    from sigmazero.report.formats import count

    for change in done:
        rows = ", ".join(map(str, change.lowered[:10])) + (", ..." if len(change.lowered) > 10 else "")
        lowered = f"{len(change.lowered)} lowered" + (f" (rows {rows})" if rows else "")
        echo(f"board {change.board}: {count(change.offered, 'point')}, {lowered}, {change.refused} do not hold")
