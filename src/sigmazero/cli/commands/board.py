"""`sigmazero board`: a leaderboard whose proofs are the attacks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import sigmazero as sz
from sigmazero.cli import inputs, options
from sigmazero.cli.console import count, echo, warn, wrote

if TYPE_CHECKING:
    from sigmazero.bench.loader import Loader
    from sigmazero.board.change import Change

app = typer.Typer(**options.GROUP)
MAX_LINES = 50
Folder = Annotated[Path, typer.Argument(metavar="BOARD", help="The leaderboard's folder.")]
By = Annotated[str, typer.Option("--by", metavar="NAME", help="Who found the points: each sample keeps the name.")]
Stores = Annotated[
    list[Path] | None, typer.Option("--from", metavar="STORE", help="Take points from there (repeatable).")
]
Cascade = Annotated[Literal["standard", "quick", "none"], typer.Option("--cascade", help="The list of attacks to run.")]
TimeLimit = Annotated[
    float | None, typer.Option("--time-limit", metavar="SECONDS", help="For one sample; none by default.")
]


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
    rows: options.RowNumbers = None,
    limit: options.Limit = None,
    shuffle: options.Shuffle = None,
    unit: options.UnitName = "feature",
    k: options.Ks = None,
) -> None:
    """Make a leaderboard, or add a board to one: fixed rows, known by their hash, and what counts as one change.

    \b
    Example:
      sigmazero board init my-board mnist mnist --limit 1000 --shuffle 0
      sigmazero board init my-board cifar10-pixels cifar10 --limit 1000 --unit pixel
    """
    from sigmazero.bench.plan import DataSpec
    from sigmazero.board.folder import KS, new_board

    ks = sorted({int(each) for each in inputs.numbers(k) or KS})
    made = new_board(folder, name, DataSpec(name, data, rows, limit, shuffle), unit, ks)
    echo(f"board {name}: {len(made)} rows, sha256 {made.content_hash}")


@app.command()
def add(
    folder: Folder,
    card: Annotated[Path, typer.Argument(metavar="CARD", help="The model's card, a TOML file.")],
    by: By,
    store: Stores = None,
    cascade: Cascade = "standard",
    allow: options.Allow = None,
    batch_size: options.BatchSize = None,
    device: options.Device = "auto",
    trust_code: options.TrustCode = False,
) -> None:
    """Add a model by its card: it is examined, attacked by SparseAutoAttack, and every point is replayed.

    Adding a model again gives it a new card and keeps its points.

    \b
    Example:
      sigmazero board add my-board cards/mine.toml --by "Ada Lovelace"
    """
    loader = _loader(device, trust_code)
    how: dict[str, Any] = {"version": None if cascade == "none" else cascade, "allow": inputs.allowed_codes(allow)}
    how |= {"batch_size": batch_size or 250}
    done = sz.board.add(sz.board.Leaderboard(folder), card, loader, by=by, stores=store or (), **how)
    echo(f"{card} is added")
    show_changes(done)


@app.command()
def submit(
    folder: Folder,
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A store, or an .npz file with x_adv and ids.")],
    by: By,
    tool: Annotated[
        str | None, typer.Option("--tool", metavar="NAME", help="What found them; by default the attacks in the store.")
    ] = None,
    entry: Annotated[
        str | None,
        typer.Option("--entry", metavar="NAME", help="The model they fool; by default by its weights' hash."),
    ] = None,
    device: options.Device = "auto",
    trust_code: options.TrustCode = False,
) -> None:
    """Lower samples with points that fool a model by fewer changes, whoever found them and with whatever tool.

    Every point is replayed. Each sample keeps the best point and who found it; exit code 1 if nothing was lowered.

    \b
    Example:
      sigmazero board submit my-board runs/mine.db --by "Ada Lovelace"
      sigmazero board submit my-board points.npz --entry demo --by "Ada Lovelace" --tool "my attack"
    """
    loader = _loader(device, trust_code)
    done = sz.board.submit(sz.board.Leaderboard(folder), store, loader, by=by, tool=tool, entry=entry)
    show_changes(done)
    if not any(change.lowered for change in done):
        raise typer.Exit(1)


@app.command()
def prove(
    folder: Folder,
    entry: Annotated[str, typer.Argument(metavar="NAME", help="The model, by the name on its card.")],
    up_to: Annotated[int, typer.Option("--up-to", metavar="N", help="Prove nothing about more changes than this.")] = 1,
    time_limit: TimeLimit = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="STORE", help="Take over what certify --store proved there, as not checked."),
    ] = None,
    device: options.Device = "auto",
    trust_code: options.TrustCode = False,
) -> None:
    """Raise the certified lower bounds of a model, so that its rows are intervals.

    A bound above what somebody's point needs is refused. Exit code 1 if nothing rose.

    \b
    Example:
      sigmazero board prove my-board demo --up-to 1 --time-limit 60
    """
    loader = _loader(device, trust_code)
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
    again: Annotated[
        float | None,
        typer.Option("--again", metavar="SECONDS", help="Prove every lower bound again, in at most this time each."),
    ] = None,
    device: options.Device = "auto",
    trust_code: options.TrustCode = False,
) -> None:
    """Check every card, hash and row, and replay every point, in strict fp32 and as torch computes by default.

    Lists what is wrong by the name of the file; exit code 1 if anything is, or could not be checked.

    \b
    Example:
      sigmazero board verify my-board
    """
    loader = _loader(device, trust_code)
    verdict = sz.board.verify(sz.board.Leaderboard(folder), loader, again)
    wrong = [*verdict.wrong, *verdict.skipped]
    for line in wrong[:MAX_LINES]:
        warn(line)
    if len(wrong) > MAX_LINES:
        warn(f"and {len(wrong) - MAX_LINES} more")
    claims = f", {count(verdict.unchecked, 'lower bound')} not proved here" if verdict.unchecked else ""
    checked = f"{count(verdict.entries, 'model')}, {count(verdict.points, 'point')} replayed{claims}"
    echo(f"{checked}: {len(verdict.wrong)} wrong, {len(verdict.skipped)} not checked")
    if wrong:
        raise typer.Exit(1)


@app.command()
def site(
    folder: Folder,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where the site goes.")],
) -> None:
    """Write the leaderboard as pages that need no server; no model is loaded and no code runs.

    \b
    Example:
      sigmazero board site my-board --out site
    """
    sz.board.write_board(sz.board.Leaderboard(folder), out, _loader("cpu", False))
    wrote(out / "index.html")


@app.command()
def example(
    folder: Folder,
    rows: Annotated[int, typer.Option("--rows", metavar="N", help="Rows of each board.")] = 20,
    cascade: Cascade = "quick",
    device: options.Device = "auto",
) -> None:
    """Build a leaderboard and its site with the models at hand: the package's, and known ones whose files are here.

    \b
    Example:
      sigmazero board example my-board --rows 100 --device cuda
    """
    loader = _loader(device, False)
    from sigmazero.board.example import build_example

    for line in build_example(folder, loader, rows=rows, version=cascade):
        warn(line)
    sz.board.write_board(sz.board.Leaderboard(folder), folder / "site", loader)
    wrote(folder / "site" / "index.html")


def _loader(device: str, trust_code: bool) -> Loader:
    from sigmazero.bench.loader import Loader

    return Loader(inputs.device(device), trust=inputs.trust(trust_code))


def show_changes(done: Sequence[Change]) -> None:
    """Say what became of points, a line per board."""
    for change in done:
        rows = ", ".join(map(str, change.lowered[:10])) + (", ..." if len(change.lowered) > 10 else "")
        lowered = f"{len(change.lowered)} lowered" + (f" (rows {rows})" if rows else "")
        echo(f"board {change.board}: {count(change.offered, 'point')}, {lowered}, {change.refused} do not hold")
