"""The pictures of `sigmazero report` that need more of a store than its figures: perturbations, inputs and traces."""

from pathlib import Path
from typing import Annotated

import typer

from sigmazero.bench.cells import Loader
from sigmazero.cli.console import show_path
from sigmazero.report.figures.figure_one import save_figure_one
from sigmazero.report.figures.gallery import ROWS, save_gallery
from sigmazero.store.store import Store

Pictures = Annotated[
    Path | None,
    typer.Option(
        "--pictures",
        metavar="FILE",
        help="Some inputs clean, adversarial and with their changes marked, per attack; as .pdf, .svg or .png.",
    ),
]
Rows = Annotated[
    int | None, typer.Option("--rows", metavar="N", help=f"With --pictures: how many inputs; {ROWS} by default.")
]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="With --pictures or a page: folder with data files.")
]
FigureOne = Annotated[
    Path | None,
    typer.Option("--figure-1", metavar="FILE", help="The path of a search with a trace, as .pdf, .svg or .png."),
]


def write_pictures(
    store: Path, pictures: Path | None, rows: int | None, data_dir: Path | None, figure_one: Path | None, mix: bool
) -> None:
    """Draw what is asked for and print the paths."""
    if pictures is None and (rows is not None or data_dir is not None):
        option = "--rows" if rows is not None else "--data-dir"
        raise ValueError(f"{option} says which inputs to draw; give --pictures FILE too")
    with Store(store) as opened:
        if pictures is not None:
            loader = Loader("cpu", data_dir=data_dir)
            for path in save_gallery(pictures, opened, loader, rows=ROWS if rows is None else rows, mix=mix):
                show_path(path)
        if figure_one is not None:
            save_figure_one(figure_one, opened)
            show_path(figure_one)
