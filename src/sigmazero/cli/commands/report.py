"""`sigmazero report`: a store as the paper's tables and figures, as a page, or beside another store."""

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
from sigmazero.cli.fitting import WIDE, show_rows
from sigmazero.cli.report_figures import chosen, with_figures, write_figures
from sigmazero.cli.report_page import SampleCount, is_page, refuse_for_page, say_untrusted
from sigmazero.cli.report_site import Bundle, More, write_bundle
from sigmazero.core.files import replacing
from sigmazero.core.findings import Finding
from sigmazero.core.messages import visible
from sigmazero.report import compare as comparison
from sigmazero.report import findings as doubts
from sigmazero.report import formats, latex, published
from sigmazero.report import table as tables
from sigmazero.report.figures import FIGURES
from sigmazero.report.figures.figure import Figure, Request
from sigmazero.report.pages.page import make_page
from sigmazero.report.pages.render import save_page
from sigmazero.report.runs import COST, Run, by_cost, groups, load
from sigmazero.store.store import Store

WRITERS = {"markdown": formats.to_markdown, "csv": formats.to_csv, "latex": latex.to_latex}
ENDINGS = {".md": "markdown", ".csv": "csv", ".tex": "latex", ".txt": "terminal"}

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
Intervals = Annotated[bool, typer.Option("--intervals", help="Tables with 95 % intervals of rates and medians.")]
SHOWING = " or ".join(f"--{figure.name}" for figure in FIGURES.values() if figure.inputs)
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
    intervals: Intervals = False,
    data_dir: DataDir = None,
    trust_code: options.TrustCode = False,
    bundle: Bundle = None,
    samples: SampleCount = None,
    **values: Any,
) -> None:
    """Make tables, figures or a page from a store, or compare two; nothing is attacked again.

    The strongest attack comes first, and a sample that was not fooled counts as ∞. Of the figures of a run with a
    budget only its success rate at that budget is known. Two stores are compared sample by sample, before and after.

    \b
    Example:
      sigmazero report runs/small.db
      sigmazero report runs/small.db -o report.html
      sigmazero report runs/small.db --intervals --k 5,10,24
      sigmazero report before.db after.db
      sigmazero report runs/adult.db --over cost --curves curves.pdf
      sigmazero report runs/minimum-norm-1000.db --table minimum-norm --to latex --out table.tex --compare paper
      sigmazero report runs/small.db --curves curves.pdf --log --pareto pareto.svg
      sigmazero report runs/visual-comparison.db --pictures pictures.png --rows 4
      sigmazero report runs/small.db runs/minimum-norm-1000.db --bundle site/
    """
    given, page, figures = numbers(k, over) or None, is_page(out, to), chosen(values)
    refuse_over(over, page, bundle)
    refuse_for_page(page, samples, table)
    refuse_data_dir(data_dir, page, figures)
    refuse_stores([store, *(more or [])], [out, *figures.values()])
    against = None if compare is None else partial(published.compare, usual=usual(), source=compare)
    if bundle is None and more:
        compare_stores([store, *more], given, to, out)
        return
    write_bundle(bundle, [store, *(more or [])], given, mix)
    with Store(store) as opened:
        loader = Loader("cpu", data_dir=data_dir, trust=options.trust(trust_code))
        runs, clean = counted(load(opened), over), partial(clean_rows, opened, loader=loader)
        if figures:
            request = partial(Request, groups(runs, mix), opened, clean, given or ())
            write_figures(figures, request, values)
        ks = given or (published.KS if against else None)
        if page and out is not None:
            say_untrusted(runs, loader.trust)
            save_page(out, make_page(opened, clean, ks=ks, mix=mix, compare=against, limit=samples))
            show_path(out)
        elif table is not None or not (figures or bundle):
            made = tables.build(table or (tables.kinds(runs) or ["minimum-norm"])[0], runs, ks, mix)
            say_left_out(runs, table, doubts.errors(doubts.findings(opened, runs)))
            made = replace(made, intervals=intervals)
            write_table(made if against is None else against(made), to, out)


def compare_stores(stores: Sequence[Path], ks: Sequence[float] | None, to: str | None, out: Path | None) -> None:
    """Write what differs between two stores, as a page, as text, or every row as CSV."""
    if len(stores) > 2:
        raise ValueError(f"{stores[2]}: two stores are compared; more of them make a site with --bundle DIR")
    with Store(stores[0]) as first, Store(stores[1]) as second:
        found = comparison.compare(load(first), load(second), (stores[0].name, stores[1].name), ks)
    if is_page(out, to) and out is not None:
        save_page(out, found.to_page())
        show_path(out)
        return
    form = to or ("terminal" if out is None else ENDINGS.get(out.suffix.lower(), ""))
    if form == "terminal":
        show_comparison(found)
    elif form in ("markdown", "csv"):
        write_text(found.to_markdown() if form == "markdown" else found.to_csv(), out)
    else:
        raise ValueError(f"two stores are compared as terminal, markdown, csv or .html, not {to or out}")


def show_comparison(found: comparison.Comparison) -> None:
    """Print the figures before and after, and the rows that changed most."""
    screen = console()
    screen.print(f"{visible(found.names[0])} before, {visible(found.names[1])} after", soft_wrap=True)
    show_rows(found.lines(), ("run", "figure"), screen)
    for pair in found.pairs:
        screen.print(visible(f"{comparison.label(pair)}: {found.counts(pair)}"), soft_wrap=True)
        if rows := comparison.changed_rows(pair):
            screen.print(formats.rich_table(rows))
    for line in found.alone:
        screen.print(visible(line), soft_wrap=True)


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


def counted(runs: list[Run], what: str) -> list[Run]:
    """The runs as --over counts them; refused where none of them has costs."""
    found = by_cost(runs) if what == COST else runs
    if runs and not found:
        raise ValueError("--over cost: no run in the store has a space with costs and no budget; leave it out")
    return found


def refuse_over(over: str, page: bool, bundle: Path | None) -> None:
    """A page counts both ways by itself; a leaderboard counts changes."""
    if over not in ("changes", COST):
        raise ValueError(f"--over {over}: choose one of changes, {COST}")
    if over == COST and (page or bundle is not None):
        what = "a page, which has both" if page else "--bundle, which counts changes"
        raise ValueError(f"--over cost does not go with {what}; leave it out")


def say_left_out(runs: Sequence[Run], table: str | None, found: Sequence[Finding]) -> None:
    """Say that runs with a budget are in another table, and what makes the figures doubtful."""
    budgeted = sum(run.budget is not None for run in runs)
    if table is None and 0 < budgeted < len(runs):
        tell(f"{budgeted} runs with a budget are not in this table; --table fixed-budget shows them")
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


def write_table(made: tables.Table, to: str | None, path: Path | None) -> None:
    """Print a table or write it, in the format asked for or the one that the file's name tells."""
    form = to or ("terminal" if path is None else ENDINGS.get(path.suffix.lower(), ""))
    if form not in ENDINGS.values():
        asked = f"--to {to}" if to else f"--out {path}"
        endings, known = ", ".join([".html", *ENDINGS]), ", ".join(ENDINGS.values())
        raise ValueError(f"{asked} is no known format; end --out in {endings}, or give --to with one of {known}")
    if path is None and form == "terminal":
        show_table(made, console())
    else:
        write_text(WRITERS[form](made) if form in WRITERS else terminal_text(made), path)


def write_text(text: str, path: Path | None) -> None:
    """Print a text, or write it to a file and print its path."""
    if path is None:
        pour(text)
        return
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
    show_path(path)


def terminal_text(made: tables.Table) -> str:
    """The table as the terminal shows it, without colours and with every cell on one line."""
    screen = Screen(file=StringIO(), width=WIDE)
    with screen.capture() as captured:
        show_table(made, screen)
    return captured.get()


def show_table(made: tables.Table, screen: Console) -> None:
    """Print a table with its caption; beside the paper, a line per figure."""
    screen.print(visible(made.caption), soft_wrap=True)
    if made.compared:
        screen.print(formats.rich_table(formats.beside_paper(made), left=(*made.words, "figure")))
    else:
        show_rows(formats.rows(made), made.words, screen)
    for text in (formats.QUERIES.capitalize(), formats.caution(made)) if made.compared else ():
        if text:
            screen.print(text, soft_wrap=True)
