"""What the commands print and write of an attack's result."""

from pathlib import Path

from torch import Tensor

from sigmazero.cli.console import out, say, show_path, tell
from sigmazero.core.findings import Finding, render
from sigmazero.core.result import Result
from sigmazero.data import Rows
from sigmazero.report.figures.images import is_image
from sigmazero.report.figures.picture import save_picture
from sigmazero.report.tables.overview import run_row
from sigmazero.report.tables.text import rich_table
from sigmazero.store.results import save_result


def show_figures(result: Result, rows: Rows, name: str, title: str) -> None:
    """Print the table of a run."""
    say(title, style="bold")
    out().print(rich_table([{"attack": name, **run_row(result, rows.labels)}], down=True))


def show_findings(findings: list[Finding]) -> None:
    """Print what the doctor found as warnings; nothing if all is well."""
    if findings:
        tell(render(findings), style="yellow")


def write_result(path: Path, result: Result, rows: Rows, targets: Tensor | None, title: str) -> None:
    """Write the result, and its picture if the inputs are images; print the paths."""
    save_result(path, result, labels=rows.labels, targets=targets)
    show_path(path)
    if is_image(rows.images):
        write_picture(path.with_suffix(".png"), result, rows, title)


def write_picture(path: Path, result: Result, rows: Rows, title: str) -> None:
    """Write the picture of a run and print its path."""
    save_picture(path, result, rows.images, rows.labels, title=title)
    show_path(path)
