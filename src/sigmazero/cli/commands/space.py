"""`sigmazero space`: draft or check a constraint file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sigmazero.cli import options, output
from sigmazero.cli.console import echo, show, warn

if TYPE_CHECKING:
    from sigmazero.spaces.space import Columns

app = typer.Typer(**options.GROUP)
ADVICE = "this is a draft from the rows: correct ends, directions and costs before you use it (docs/spaces.md)"


@app.callback()
def top() -> None:
    """Draft or check a constraint file.

    \b
    Example:
      sigmazero space draft mine.npz > mine.space.toml
    """


@app.command()
def draft(data: options.DataName) -> None:
    """Print a draft constraint file, or the one the data set comes with.

    For a table (CSV, ARFF, Parquet) the first draft describes its columns; run again to draft the constraints.

    \b
    Example:
      sigmazero space draft mine.npz > mine.space.toml
      sigmazero space draft loans.csv > loans.toml
    """
    from sigmazero.data import load, table
    from sigmazero.report.spaces import plain
    from sigmazero.spaces.space import Space

    notes = table.notes_of(Path(data))
    if table.is_table(data) and not table.has_text(notes):
        typer.echo(table.draft(data), nl=False)
        warn(f"this describes the columns: correct it, above all the label, and save it as {notes}")
        return
    rows = load(data)
    space = Space.infer(rows.images, rows.names) if rows.space is None else rows.space
    if rows.space is None and rows.names is None and rows.images.ndim > 2:
        grid = " in steps of 1/255" if space.grid else ""
        typer.echo(f"# every pixel goes from {plain(float(space.lower))} to {plain(float(space.upper))}{grid}")
    typer.echo(space.to_toml(), nl=False)
    warn(ADVICE if rows.space is None else "the data comes with this space")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A constraint file (TOML).")],
    data: options.DataName,
) -> None:
    """Show what a constraint file declares, and check that all rows are legal; exit code 1 if they are not.

    \b
    Example:
      sigmazero space check mine.space.toml mine.npz
    """
    from sigmazero.data import load
    from sigmazero.models.doctor import examine_space
    from sigmazero.spaces.space import Space

    space, rows = Space.from_toml(file), load(data)
    columns = space.columns(rows.images.shape[1:])
    findings = examine_space(space, rows.images)
    show(declared(columns, rows.names or space.names), left=("feature", "kind", "direction"))
    output.show_findings(findings)
    wrong = any(finding.severity == "error" for finding in findings)
    echo(f"{len(rows)} rows, {len(columns.kind)} features: {'not all legal' if wrong else 'all legal'}")
    if wrong:
        raise typer.Exit(1)


def declared(columns: Columns, names: Sequence[str] | None) -> list[dict[str, str]]:
    """Return a table row for each site, which counts as one change."""
    from sigmazero.report.spaces import plain, sites_of

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
    from sigmazero.spaces.space import DIRECTIONS

    ways = {(bool(up), bool(down)) for up, down in zip(columns.rise[:, k], columns.fall[:, k], strict=True)}
    words = [word for word, way in DIRECTIONS.items() if way in ways]
    return words[0] if len(words) == 1 else "by sample"


def _same(words: list[str]) -> str:
    return words[0] if len(set(words)) == 1 else "..."
