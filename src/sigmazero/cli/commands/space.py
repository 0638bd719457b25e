"""`sigmazero space`: what may change in data, drafted and checked."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sigmazero import data
from sigmazero.cli import options
from sigmazero.cli.allowed import read_space
from sigmazero.cli.console import out, pour, say, tell
from sigmazero.cli.results import show_findings
from sigmazero.data.table import draft as draft_table
from sigmazero.data.table import has_text, is_table, notes_of
from sigmazero.models.doctor import examine_space
from sigmazero.report.formats import rich_table
from sigmazero.report.spaces import plain, sites_of
from sigmazero.spaces.space import DIRECTIONS, Columns, Space

app = typer.Typer(no_args_is_help=True)
DataArgument = Annotated[str, typer.Argument(metavar="DATA", help="A data set, as for attack --data.")]
ADVICE = "a draft from what the rows show: correct ends, directions and costs before you use it (docs/spaces.md)"
LEFT = ("feature", "kind", "direction")


@app.callback()
def top() -> None:
    """Say what may change in data, to which values, at what cost.

    \b
    Example:
      sigmazero space draft mine.npz > mine.space.toml
    """


@app.command()
def draft(data_name: DataArgument, data_dir: options.DataDir = None) -> None:
    """Print a first draft of a space from data, as TOML to correct; of data that has one, that.

    Of a table (CSV, ARFF, Parquet) that has no notes beside it yet, a draft of these is printed first.

    \b
    Example:
      sigmazero space draft mine.npz > mine.space.toml
      sigmazero space draft loans.csv > loans.toml
    """
    if is_table(data_name) and not has_text(notes_of(Path(data_name))):
        pour(draft_table(data_name))
        tell(f"what its columns are: correct it, the label above all, and save it as {notes_of(Path(data_name))}")
        return
    rows = data.load(data_name, data_dir=data_dir)
    space = Space.infer(rows.images, rows.names) if rows.space is None else rows.space
    if rows.space is None and rows.names is None and rows.images.ndim > 2:
        grid = " in steps of 1/255" if space.grid else ""
        pour(f"# every pixel goes from {plain(float(space.lower))} to {plain(float(space.upper))}{grid}\n")
    pour(space.to_toml())
    tell(ADVICE if rows.space is None else "the data comes with this space")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A space, as TOML.")],
    data_name: DataArgument,
    data_dir: options.DataDir = None,
) -> None:
    """Say what a space declares, and whether the rows of some data are legal in it; exit code 1 if they are not.

    \b
    Example:
      sigmazero space check mine.space.toml mine.npz
    """
    space, rows = read_space(file), data.load(data_name, data_dir=data_dir)
    columns = space.columns(rows.images.shape[1:])
    findings = examine_space(space, rows.images)
    out().print(rich_table(declared(columns, rows.names or space.names), left=LEFT))
    show_findings(findings)
    wrong = any(finding.severity == "error" for finding in findings)
    say(f"{len(rows)} rows, {len(columns.kind)} features: {'not all legal' if wrong else 'all legal'}")
    if wrong:
        raise typer.Exit(1)


def declared(columns: Columns, names: Sequence[str] | None) -> list[dict[str, str]]:
    """What a space says of each thing that counts as one change, as rows of a table."""
    sites = sites_of(names or [str(k) for k in range(len(columns.kind))], columns)
    return [
        {
            "feature": site.name,
            "kind": f"one of {len(site.members)}" if site.one_hot else _same([columns.kind[k] for k in site.members]),
            "from": _same([plain(columns.lower[k]) for k in site.members]),
            "to": _same([plain(columns.upper[k]) for k in site.members]),
            "direction": _same([_direction(columns, k) for k in site.members]),
            "cost": plain(site.cost),
        }
        for site in sites
    ]


def _direction(columns: Columns, k: int) -> str:
    ways = {(bool(up), bool(down)) for up, down in zip(columns.rise[:, k], columns.fall[:, k], strict=True)}
    words = [word for word, way in DIRECTIONS.items() if way in ways]
    return words[0] if len(words) == 1 else "by sample"


def _same(words: list[str]) -> str:
    return words[0] if len(set(words)) == 1 else "..."
