"""`sigmazero report`: a store as the paper's tables and figures."""

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sigmazero.cli.console import err, show_path
from sigmazero.cli.console import out as console
from sigmazero.cli.report_figures import DataDir, FigureOne, Pictures, Rows, write_pictures
from sigmazero.cli.report_page import Samples, is_page, refuse_for_page, write_page
from sigmazero.cli.report_site import Bundle, More, write_bundle
from sigmazero.core.files import replacing
from sigmazero.report.figures import ablation as parts
from sigmazero.report.figures import curves as drawn
from sigmazero.report.figures import style
from sigmazero.report.measure import Cell
from sigmazero.report.paper import published
from sigmazero.report.tables import latex, layout, render
from sigmazero.report.tables.summary import load
from sigmazero.report.tables.text import rich_table
from sigmazero.store.store import Store

FORMATS = {".md": "markdown", ".csv": "csv", ".tex": "latex", ".txt": "terminal"}
WIDE = 300
ACROSS = 2

StoreFile = Annotated[Path, typer.Argument(metavar="STORE", help="A store, as made by a benchmark.")]
Table = Annotated[
    str | None, typer.Option("--table", metavar="NAME", help="minimum-norm or fixed-budget; by default what it has.")
]
To = Annotated[
    str | None, typer.Option("--to", metavar="FORMAT", help="terminal, markdown, csv or latex; or as --out ends.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="Write the table there, not to stdout; .html: a page with all."),
]
Compare = Annotated[str | None, typer.Option("--compare", metavar="SOURCE", help="paper: its figures beside ours.")]
Changes = Annotated[
    list[str] | None, typer.Option("--k", metavar="K", help="Changes to give success rates at: 24,50 or repeated.")
]
Mix = Annotated[bool, typer.Option("--mix", help="Allow what does not compare side by side.")]
Standalone = Annotated[bool, typer.Option("--standalone", help="With latex: a whole document.")]
Wide = Annotated[bool, typer.Option("--wide", help="Two models beside each other, as in the paper.")]
Curves = Annotated[
    Path | None, typer.Option("--curves", metavar="FILE", help="ASR against k per model, as .pdf, .svg or .png.")
]
Log = Annotated[bool, typer.Option("--log", help="With --curves: a logarithmic k.")]
Pareto = Annotated[
    Path | None, typer.Option("--pareto", metavar="FILE", help="Queries against median l0, as .pdf, .svg or .png.")
]
Ablation = Annotated[
    Path | None,
    typer.Option(
        "--ablation",
        metavar="FILE",
        help="Components as .md, .csv or .tex; heat maps and curves of sigma-zero's numbers as .pdf, .svg or .png.",
    ),
]


def report(
    store: StoreFile,
    more: More = None,
    table: Table = None,
    to: To = None,
    out: Out = None,
    compare: Compare = None,
    k: Changes = None,
    mix: Mix = False,
    standalone: Standalone = False,
    wide: Wide = False,
    curves: Curves = None,
    log: Log = False,
    pareto: Pareto = None,
    ablation: Ablation = None,
    pictures: Pictures = None,
    rows: Rows = None,
    data_dir: DataDir = None,
    figure_one: FigureOne = None,
    bundle: Bundle = None,
    samples: Samples = None,
) -> None:
    """Make tables and figures from a store; nothing is attacked again.

    Attacks stand from the least to the most effective, a sample that was not fooled counts as ∞. Of the figures of a
    run with a budget only its success rate at that budget is known.

    \b
    Example:
      sigmazero report runs/small.db
      sigmazero report runs/small.db -o report.html
      sigmazero report runs/minimum-norm-1000.db --table minimum-norm --to latex --out table.tex --compare paper
      sigmazero report runs/small.db --curves curves.pdf --log --pareto pareto.svg
      sigmazero report runs/ablation-components.db --ablation components.md
      sigmazero report runs/visual-comparison.db --pictures pictures.png --rows 4
      sigmazero report runs/figure-1.db --figure-1 figure-1.pdf
      sigmazero report runs/small.db runs/minimum-norm-1000.db --bundle site/
    """
    ks, page = numbers(k), is_page(out, to)
    refuse_for_page(page, samples, table, standalone)
    refuse_stores([store, *(more or [])], [out, curves, pareto, ablation, pictures, figure_one])
    with Store(store) as opened:
        cells = load(opened)
    try:
        write_pictures(store, pictures, rows, data_dir if pictures or not page else None, figure_one, mix)
        write_bundle(bundle, [store, *(more or [])], ks, mix)
        write_curves(curves, pareto, cells, log, mix)
        if ablation is not None:
            write_ablation(ablation, cells, ks, compare, mix, standalone)
        if page and out is not None:
            write_page(out, store, ks, mix=mix, compare=compare, samples=samples, data_dir=data_dir)
        elif table is not None or not (curves or pareto or ablation or pictures or figure_one or bundle):
            made = layout.build(table or usual(cells), cells, ks or layout.KS, mix)
            say_left_out(cells, table)
            made = replace(made, across=ACROSS) if wide else made
            write_table(made if compare is None else published.compare(made, compare), to, out, standalone)
    except ValueError as error:  # the advice is for Python
        raise ValueError(str(error).replace("mix=True", "--mix")) from error


def numbers(texts: Sequence[str] | None) -> list[float]:
    """The numbers of changes that --k gives.

    >>> numbers(["24,50", "100"]), numbers(None)
    ([24.0, 50.0, 100.0], [])
    """
    found = []
    for text in (part.strip() for given in texts or () for part in given.split(",")):
        if not text.isdecimal():
            raise ValueError(f"--k {text}: give whole numbers of changes, such as --k 24,50")
        found.append(float(text))
    return found


def usual(cells: Sequence[Cell]) -> str:
    """The table that fits the store."""
    return "fixed-budget" if cells and all(info.budget is not None for info, _ in cells) else "minimum-norm"


def say_left_out(cells: Sequence[Cell], table: str | None) -> None:
    """A store may have both kinds of cells, a table one of them."""
    budgeted = sum(info.budget is not None for info, _ in cells)
    if table is None and 0 < budgeted < len(cells):
        err().print(f"{budgeted} cells with a budget are not in this table; --table fixed-budget shows them")


def refuse_stores(stores: Sequence[Path], files: Sequence[Path | None]) -> None:
    """Nothing is written over what is being read."""
    read = {store.resolve() for store in stores}
    for file in files:
        if file is not None and file.resolve() in read:
            raise ValueError(f"{file} is the store itself; name another file")


def write_curves(curves: Path | None, pareto: Path | None, cells: Sequence[Cell], log: bool, mix: bool) -> None:
    """The figures asked for: success against k, and cost against l0."""
    if curves is not None:
        drawn.save_curves(curves, cells, log=log, mix=mix)
        show_path(curves)
    if pareto is not None:
        drawn.save_pareto(pareto, cells, mix=mix)
        show_path(pareto)


def write_ablation(
    path: Path, cells: Sequence[Cell], ks: Sequence[float], compare: str | None, mix: bool, standalone: bool
) -> None:
    """The table of components or the figure, as the file's name asks."""
    if style.known(path, (*parts.TABLE_FORMATS, *style.FORMATS), "--ablation") in style.FORMATS:
        parts.save_ablation(path, cells, ks or layout.KS, mix)
        show_path(path)
        return
    made = parts.components(cells, ks or parts.PAPER_KS, mix)
    write_table(made if compare is None else published.compare(made, compare), None, path, standalone)


def write_table(made: layout.Layout, to: str | None, path: Path | None, standalone: bool) -> None:
    """Print a table or write it, in the format asked for or the one that the file's name tells."""
    form = to or ("terminal" if path is None else FORMATS.get(path.suffix.lower(), ""))
    if form not in render.FORMATS:
        asked = f"--to {to}" if to else f"--out {path}"
        endings, formats = ", ".join([".html", *FORMATS]), ", ".join(render.FORMATS)
        raise ValueError(f"{asked} is no known format; end --out in {endings}, or give --to with one of {formats}")
    if standalone and form != "latex":
        raise ValueError(f"--standalone makes a LaTeX document, not {form}; add --to latex")
    if made.across > 1 and form == "csv":
        raise ValueError(
            "--wide puts models beside each other for people; a CSV file has one line per run, leave it out"
        )
    if path is None and form == "terminal":
        show_table(made, console())
        return
    text = as_text(made, form, standalone)
    if path is None:
        typer.echo(text, nl=False)
        return
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
    show_path(path)


def as_text(made: layout.Layout, form: str, standalone: bool) -> str:
    """A table in a format."""
    if form == "latex":
        return latex.to_latex(made, standalone=standalone)
    if form != "terminal":
        return render.to_csv(made) if form == "csv" else render.to_markdown(made)
    screen = Console(file=StringIO(), width=WIDE)  # no terminal: a file gets no colours and no broken cells
    with screen.capture() as captured:
        show_table(made, screen)
    return captured.get()


def show_table(made: layout.Layout, screen: Console) -> None:
    """Print a table with its caption."""
    screen.print(made.caption, markup=False, highlight=False, soft_wrap=True)
    for table in render.tables(made, after="\n"):
        screen.print(rich_table(table, left=made.words))
    if made.compared:
        screen.print(render.CAVEAT, markup=False, highlight=False, soft_wrap=True)
