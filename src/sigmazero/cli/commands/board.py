"""`sigmazero board`: a leaderboard whose proofs are the attacks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sigmazero import board as boards
from sigmazero.bench.loader import Loader
from sigmazero.bench.plan import DataSpec
from sigmazero.board.change import Change
from sigmazero.board.example import build_example
from sigmazero.board.folder import KS, Leaderboard, new_board
from sigmazero.cli import options
from sigmazero.cli.console import say, show_path, tell
from sigmazero.report.formats import count

app = typer.Typer(no_args_is_help=True)
SHOWN = 50
Folder = Annotated[Path, typer.Argument(metavar="BOARD", help="The leaderboard's folder.")]
By = Annotated[str, typer.Option("--by", metavar="NAME", help="Who found the points: each sample keeps the name.")]
ColumnKs = Annotated[str, typer.Option("--k", metavar="K,...", help="The numbers of changes that columns are about.")]


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
    data_name: options.DataName,
    rows: options.RowNumbers = None,
    limit: options.Limit = None,
    seed: options.Seed = None,
    unit: options.UnitName = "feature",
    k: ColumnKs = ",".join(map(str, KS)),
    data_dir: options.DataDir = None,
) -> None:
    """Make a leaderboard, or add a board to one: fixed rows, known by their hash, and what counts as one change.

    \b
    Example:
      sigmazero board init my-board mnist --data mnist --limit 1000 --seed 0
      sigmazero board init my-board cifar10-pixels --data cifar10 --limit 1000 --unit pixel
    """
    spec = DataSpec(name, data_name, rows, limit, seed)
    made = new_board(folder, name, spec, options.unit(unit), whole_numbers(k), data_dir)
    say(f"board {name}: {len(made)} rows, sha256 {made.content_hash}")


@app.command()
def add(
    folder: Folder,
    card: Annotated[Path, typer.Argument(metavar="CARD", help="The model's card, a TOML file.")],
    by: By,
    store: Annotated[
        list[Path] | None, typer.Option("--from", metavar="STORE", help="Take points from there; may be repeated.")
    ] = None,
    version: Annotated[
        str, typer.Option("--version", metavar="NAME", help="Of the cascade: standard, quick, or none.")
    ] = "standard",
    allow: Annotated[
        list[str] | None, typer.Option("--allow", metavar="CODE", help="Accept this finding; the page shows it.")
    ] = None,
    batch_size: options.BatchSize = None,
    device: options.DeviceName = "auto",
    model_dir: options.ModelDir = None,
    data_dir: options.DataDir = None,
    trust_code: options.TrustCode = False,
) -> None:
    """Add a model by its card: it is examined, attacked by SparseAutoAttack, and every point is replayed.

    Adding a model again gives it a new card and keeps its points.

    \b
    Example:
      sigmazero board add my-board cards/mine.toml --by "Ada Lovelace"
    """
    loader = Loader(options.device(device), model_dir, data_dir, options.trust(trust_code))
    how = {"version": None if version == "none" else version, "allow": allow or (), "batch_size": batch_size or 250}
    done = boards.add(Leaderboard(folder), card, loader, by=by, stores=store or (), **how)  # type: ignore[arg-type]
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
    device: options.DeviceName = "auto",
    model_dir: options.ModelDir = None,
    data_dir: options.DataDir = None,
    trust_code: options.TrustCode = False,
) -> None:
    """Lower samples with points that fool a model by fewer changes, whoever found them and with whatever tool.

    Every point is replayed. Each sample keeps the best point and who found it; exit code 1 if nothing was lowered.

    \b
    Example:
      sigmazero board submit my-board runs/mine.db --by "Ada Lovelace"
      sigmazero board submit my-board points.npz --entry demo --by "Ada Lovelace" --tool "my attack"
    """
    loader = Loader(options.device(device), model_dir, data_dir, options.trust(trust_code))
    done = boards.submit(Leaderboard(folder), store, loader, by=by, tool=tool, entry=entry)
    show_changes(done)
    if not any(change.lowered for change in done):
        raise typer.Exit(1)


@app.command()
def prove(
    folder: Folder,
    entry: Annotated[str, typer.Argument(metavar="NAME", help="The model, by the name on its card.")],
    up_to: Annotated[int, typer.Option("--up-to", metavar="T", help="Prove nothing about more changes than this.")] = 1,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", metavar="S", help="Seconds for one sample; none by default.")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="STORE", help="Take over what certify --store proved there, as not checked."),
    ] = None,
    device: options.DeviceName = "auto",
    model_dir: options.ModelDir = None,
    data_dir: options.DataDir = None,
    trust_code: options.TrustCode = False,
) -> None:
    """Raise the certified lower bounds of a model, so that its rows are intervals.

    A bound above what somebody's point needs is refused. Exit code 1 if nothing rose.

    \b
    Example:
      sigmazero board prove my-board demo --up-to 1 --time-limit 60
    """
    loader = Loader(options.device(device), model_dir, data_dir, options.trust(trust_code))
    done = boards.prove(Leaderboard(folder), entry, loader, up_to=up_to, time_limit=time_limit, source=source)
    for each in done:
        raised = f"{count(len(each.rows), 'bound')} raised"
        say(f"board {each.board}: {raised}, {each.exact} of {count(each.of, 'sample')} known exactly")
    if not any(each.rows for each in done):
        raise typer.Exit(1)


@app.command()
def verify(
    folder: Folder,
    again: Annotated[
        float | None,
        typer.Option("--again", metavar="S", help="Prove every lower bound again, in at most S seconds each."),
    ] = None,
    device: options.DeviceName = "auto",
    model_dir: options.ModelDir = None,
    data_dir: options.DataDir = None,
    trust_code: options.TrustCode = False,
) -> None:
    """Check every card, hash and row, and replay every point, in strict fp32 and as torch computes by default.

    Lists what is wrong by the name of the file; exit code 1 if anything is, or could not be checked.

    \b
    Example:
      sigmazero board verify my-board
    """
    loader = Loader(options.device(device), model_dir, data_dir, options.trust(trust_code))
    verdict = boards.verify(Leaderboard(folder), loader, again)
    wrong = [*verdict.wrong, *verdict.skipped]
    for line in wrong[:SHOWN]:
        tell(line)
    if len(wrong) > SHOWN:
        tell(f"and {len(wrong) - SHOWN} more")
    claims = f", {count(verdict.unchecked, 'lower bound')} not proved here" if verdict.unchecked else ""
    checked = f"{count(verdict.entries, 'model')}, {count(verdict.points, 'point')} replayed{claims}"
    say(f"{checked}: {len(verdict.wrong)} wrong, {len(verdict.skipped)} not checked")
    if wrong:
        raise typer.Exit(1)


@app.command()
def site(
    folder: Folder,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where the site goes.")],
    data_dir: options.DataDir = None,
) -> None:
    """Write the leaderboard as pages that need no server; no model is loaded and no code runs.

    \b
    Example:
      sigmazero board site my-board --out site
    """
    boards.write_board(Leaderboard(folder), out, Loader("cpu", data_dir=data_dir))
    show_path(out / "index.html")


@app.command()
def example(
    folder: Folder,
    rows: Annotated[int, typer.Option("--rows", metavar="N", help="Rows of each board.")] = 20,
    version: Annotated[str, typer.Option("--version", metavar="NAME", help="Of the cascade.")] = "quick",
    device: options.DeviceName = "auto",
    model_dir: options.ModelDir = None,
    data_dir: options.DataDir = None,
) -> None:
    """Build a leaderboard and its site with the models at hand: the package's, and known ones whose files are here.

    \b
    Example:
      sigmazero board example my-board --rows 100 --device cuda
    """
    loader = Loader(options.device(device), model_dir, data_dir)
    for line in build_example(folder, loader, rows=rows, version=version):
        tell(line)
    boards.write_board(Leaderboard(folder), folder / "site", loader)
    show_path(folder / "site" / "index.html")


def show_changes(done: Sequence[Change]) -> None:
    """Say what became of points, a line per board."""
    for change in done:
        rows = ", ".join(map(str, change.lowered[:10])) + (", ..." if len(change.lowered) > 10 else "")
        lowered = f"{len(change.lowered)} lowered" + (f" (rows {rows})" if rows else "")
        say(f"board {change.board}: {count(change.offered, 'point')}, {lowered}, {change.refused} do not hold")


def whole_numbers(text: str) -> list[int]:
    """The numbers of changes in a list.

    >>> whole_numbers("1,4, 10")
    [1, 4, 10]
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts) or len(set(parts)) < len(parts):
        raise ValueError(f"--k {text}: give different whole numbers of changes, such as --k 1,4,10")
    return sorted(map(int, parts))
