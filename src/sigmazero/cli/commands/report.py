"""`sigmazero report`: a store as the paper's tables and figures."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sigmazero.bench.loader import Loader, clean_rows
from sigmazero.bench.paper import usual
from sigmazero.cli import options
from sigmazero.cli.console import Screen, pour, show_path, tell
from sigmazero.cli.console import out as console
from sigmazero.cli.fitting import WIDE, fits, show_rows
from sigmazero.cli.report_figures import chosen, with_figures, write_figures
from sigmazero.cli.report_page import SampleCount, is_page, refuse_for_page, say_untrusted
from sigmazero.cli.report_site import Bundle, More, write_bundle
from sigmazero.core.files import replacing
from sigmazero.core.findings import Finding
from sigmazero.core.messages import visible
from sigmazero.core.metrics import DEFAULT_KS
from sigmazero.report import doubts
from sigmazero.report.figures import FIGURES
from sigmazero.report.figures.figure import Figure, Request
from sigmazero.report.html.page import make_page, save_page
from sigmazero.report.measure import COST, Measured, load
from sigmazero.report.measure import fitting as fitting_ks
from sigmazero.report.measure import over as over_cells
from sigmazero.report.paper import published
from sigmazero.report.tables import layout, render
from sigmazero.report.tables.beside import caution, lines_beside, stacked
from sigmazero.report.tables.formats import ENDINGS, as_text
from sigmazero.report.tables.text import rich_table
from sigmazero.store.store import Store

FORMATS = {**ENDINGS, ".txt": "terminal"}
ACROSS = 2

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
Over = Annotated[
    str, typer.Option("--over", metavar="WHAT", help="Count changes, or what they cost where a space has costs: cost.")
]
Mix = Annotated[bool, typer.Option("--mix", help="Allow what does not compare side by side.")]
Standalone = Annotated[bool, typer.Option("--standalone", help="With latex: a whole document.")]
Intervals = Annotated[bool, typer.Option("--intervals", help="Tables with 95 % intervals of rates and medians.")]
Wide = Annotated[bool, typer.Option("--wide", help="Two models beside each other, as in the paper.")]
SHOWING = " or ".join(f"--{figure.name}" for figure in FIGURES if figure.inputs)
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help=f"With {SHOWING} or a page: folder with data files.")
]


@with_figures
def report(
    store: options.StoreFile,
    more: More = None,
    table: Table = None,
    to: To = None,
    out: Out = None,
    compare: Compare = None,
    k: Changes = None,
    over: Over = "changes",
    mix: Mix = False,
    standalone: Standalone = False,
    wide: Wide = False,
    intervals: Intervals = False,
    data_dir: DataDir = None,
    trust_code: options.TrustCode = False,
    bundle: Bundle = None,
    samples: SampleCount = None,
    **values: Any,
) -> None:
    """Make tables and figures from a store; nothing is attacked again.

    Attacks stand from the least to the most effective, a sample that was not fooled counts as ∞. Of the figures of a
    run with a budget only its success rate at that budget is known.

    \b
    Example:
      sigmazero report runs/small.db
      sigmazero report runs/small.db -o report.html
      sigmazero report runs/small.db --intervals --k 5,10,24
      sigmazero report runs/adult.db --over cost --curves curves.pdf
      sigmazero report runs/minimum-norm-1000.db --table minimum-norm --to latex --out table.tex --compare paper
      sigmazero report runs/small.db --curves curves.pdf --log --pareto pareto.svg
      sigmazero report runs/ablation-components.db --ablation components.md
      sigmazero report runs/visual-comparison.db --pictures pictures.png --rows 4
      sigmazero report runs/figure-1.db --figure-1 figure-1.pdf
      sigmazero report runs/small.db runs/minimum-norm-1000.db --bundle site/
    """
    given, page, figures = numbers(k, over) or None, is_page(out, to), chosen(values)
    refuse_over(over, page, bundle)
    refuse_for_page(page, samples, table, standalone)
    refuse_data_dir(data_dir, page, figures)
    refuse_stores([store, *(more or [])], [out, *figures.values()])
    against = None if compare is None else partial(published.compare, usual=usual(), source=compare)
    write_bundle(bundle, [store, *(more or [])], given, mix)
    with Store(store) as opened:
        loader = Loader("cpu", data_dir=data_dir, trust=options.trust(trust_code))
        cells, clean = counted(load(opened), over), partial(clean_rows, opened, loader=loader)
        ks = given or (fitting_ks(cells) if cells else DEFAULT_KS)
        asked = Request(Path(), opened, cells, clean, ks, mix, against, standalone)
        write_figures(figures, asked, values)
        if page and out is not None:
            say_untrusted(cells, loader.trust)
            save_page(out, make_page(opened, clean, ks=given, mix=mix, compare=against, limit=samples))
            show_path(out)
        elif table is not None or not (figures or bundle):
            made = layout.build(table or fitting(cells), cells, ks, mix)
            say_left_out(cells, table, doubts.errors(doubts.findings(opened, cells)))
            made = replace(made, across=ACROSS if wide else 1, intervals=intervals)
            write_table(made if against is None else against(made), to, out, standalone)


def numbers(texts: Sequence[str] | None, over: str = "changes") -> list[float]:
    """The numbers of changes, or the costs, that --k gives.

    >>> numbers(["24,50", "100"]), numbers(None), numbers(["0.5,2"], "cost")
    ([24.0, 50.0, 100.0], [], [0.5, 2.0])
    """
    found = []
    for text in (part.strip() for given in texts or () for part in given.split(",")):
        if over == COST:
            if not text.replace(".", "", 1).isdecimal():
                raise ValueError(f"--k {text}: over cost, give costs such as --k 0.5,2")
        elif not text.isdecimal():
            raise ValueError(f"--k {text}: give whole numbers of changes, such as --k 24,50")
        found.append(float(text))
    return found


def counted(cells: Sequence[Measured], what: str) -> list[Measured]:
    """The cells as --over counts them; refused where none of them has costs."""
    found = over_cells(cells, what)
    if cells and not found:
        raise ValueError("--over cost: no run in the store has a space with costs and no budget; leave it out")
    return found


def refuse_over(over: str, page: bool, bundle: Path | None) -> None:
    """A page counts both ways by itself; a leaderboard counts changes."""
    if over not in ("changes", COST):
        raise ValueError(f"--over {over}: choose one of changes, {COST}")
    if over == COST and (page or bundle is not None):
        what = "a page, which has both" if page else "--bundle, which counts changes"
        raise ValueError(f"--over cost does not go with {what}; leave it out")


def fitting(cells: Sequence[Measured]) -> str:
    """The table that fits the store."""
    return "fixed-budget" if cells and all(info.budget is not None for info, _ in cells) else "minimum-norm"


def say_left_out(cells: Sequence[Measured], table: str | None, found: Sequence[Finding]) -> None:
    """A store may have both kinds of cells, a table one of them; nor does it show what makes its figures doubtful."""
    budgeted = sum(info.budget is not None for info, _ in cells)
    if table is None and 0 < budgeted < len(cells):
        tell(f"{budgeted} cells with a budget are not in this table; --table fixed-budget shows them")
    for finding in found:
        tell(f"error: {finding.code}: {finding.title}. {finding.detail}", style="red")


def refuse_data_dir(data_dir: Path | None, page: bool, figures: Mapping[Figure, Path]) -> None:
    """Nothing but a page and figures that show inputs needs data."""
    if data_dir is not None and not page and not any(figure.inputs for figure in figures):
        raise ValueError(f"--data-dir says where inputs are that are drawn; give {SHOWING} FILE too")


def refuse_stores(stores: Sequence[Path], files: Sequence[Path | None]) -> None:
    """Nothing is written over what is being read."""
    read = {store.resolve() for store in stores}
    for file in files:
        if file is not None and file.resolve() in read:
            raise ValueError(f"{file} is the store itself; name another file")


def write_table(made: layout.Layout, to: str | None, path: Path | None, standalone: bool) -> None:
    """Print a table or write it, in the format asked for or the one that the file's name tells."""
    form = to or ("terminal" if path is None else FORMATS.get(path.suffix.lower(), ""))
    if form not in FORMATS.values():
        asked = f"--to {to}" if to else f"--out {path}"
        endings, formats = ", ".join([".html", *FORMATS]), ", ".join(FORMATS.values())
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
    text = in_format(made, form, standalone)
    if path is None:
        pour(text)
        return
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
    show_path(path)


def in_format(made: layout.Layout, form: str, standalone: bool) -> str:
    """A table in a format."""
    if form != "terminal":
        return as_text(made, form, standalone=standalone)
    screen = Screen(file=StringIO(), width=WIDE)  # no terminal: a file gets no colours and no broken cells
    with screen.capture() as captured:
        show_table(made, screen)
    return captured.get()


def show_table(made: layout.Layout, screen: Console) -> None:
    """Print a table with its caption; beside the paper, a line per figure unless models stand beside each other."""
    screen.print(visible(made.caption), soft_wrap=True)
    if made.compared and made.across == 1:
        wide = rich_table(lines_beside(made), left=(*made.words, "figure"))
        narrow = rich_table(stacked(made), left=("run", "figure"))
        screen.print(wide if fits(wide, screen) else narrow)
    else:
        for table in render.tables(made, after="\n"):
            if made.across == 1:
                show_rows(table, made.words, screen)
            else:
                screen.print(rich_table(table, left=made.words))
    caveat = render.QUERIES.capitalize() if made.across == 1 else render.CAVEAT
    for text in (caveat, caution(made)) if made.compared else ():
        if text:
            screen.print(text, soft_wrap=True)
