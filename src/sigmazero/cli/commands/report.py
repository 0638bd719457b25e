"""`sigmazero report`: a store as the paper's tables, as a page, or beside another store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sigmazero.cli import inputs, options, output
from sigmazero.cli.console import echo, screen, show, warn, write, wrote

if TYPE_CHECKING:
    from sigmazero.report import compare as comparison
    from sigmazero.report.runs import Run
    from sigmazero.report.table import Table

ENDINGS = {".md": "markdown", ".csv": "csv", ".tex": "latex", ".txt": "terminal", ".html": "page", ".htm": "page"}

More = Annotated[
    list[Path] | None, typer.Argument(metavar="STORE ...", help="A store to compare with; more with --bundle.")
]
TableName = Annotated[
    Literal["minimum-norm", "fixed-budget"] | None, typer.Option("--table", help="By default what the store has.")
]
To = Annotated[
    Literal["terminal", "markdown", "csv", "latex"] | None, typer.Option("--to", help="Format; by default as -o ends.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="FILE", help="Write the table (.md, .csv, .tex, .txt) or a page (.html) there."
    ),
]
Compare = Annotated[Literal["paper"] | None, typer.Option("--compare", help="Show the paper's figures beside ours.")]
Intervals = Annotated[bool, typer.Option("--intervals", help="Show 95 % intervals of rates and medians.")]
Bundle = Annotated[
    Path | None,
    typer.Option("--bundle", metavar="DIR", help="Write a leaderboard over the models of all stores, as a site."),
]
Samples = Annotated[
    int | None,
    typer.Option("--samples", metavar="N", help="Samples per data set on a page; by default what 5 MB hold."),
]


def report(
    store: options.StoreFile,
    more: More = None,
    out: Out = None,
    to: To = None,
    table: TableName = None,
    k: options.Ks = None,
    cost: options.Cost = False,
    intervals: Intervals = False,
    compare: Compare = None,
    samples: Samples = None,
    bundle: Bundle = None,
    mix: options.Mix = False,
    trust_code: options.TrustCode = False,
) -> None:
    """Print a table, write a page, or compare stores.

    The strongest attack comes first, and a sample that was not fooled counts as ∞. Of a run with a budget only the
    success rate at that budget is known. Two stores are compared sample by sample, before and after.

    \b
    Example:
      sigmazero report runs/small.db
      sigmazero report runs/small.db -o report.html
      sigmazero report runs/small.db --intervals --k 5,10,24
      sigmazero report runs/adult.db --cost
      sigmazero report before.db after.db
      sigmazero report runs/small.db runs/minimum-norm-1000.db --bundle site/
      sigmazero report runs/minimum-norm-1000.db -o table.tex --compare paper
    """
    from sigmazero.bench.paper import usual
    from sigmazero.report import findings, published, runs
    from sigmazero.report.table import build, kinds
    from sigmazero.store.store import Store

    form, given = _form(to, out), inputs.numbers(k, cost)
    _refuse(store, more, out, form, samples, table, cost)
    if bundle is not None:
        from sigmazero.cli.report_site import write_bundle

        write_bundle(bundle, [store, *(more or [])], given, mix)
        return
    if more:
        _compare([store, *more], given, form, out)
        return
    against = None if compare is None else partial(published.compare, usual=usual(), source=compare)
    with Store(store) as opened:
        loaded = runs.load(opened)
        chosen = inputs.priced(loaded) if cost else loaded
        ks = given or (published.KS if against else None)
        if form == "page" and out is not None:
            _write_page(out, opened, loaded, trust_code, ks=ks, mix=mix, compare=against, limit=samples)
            return
        made = build(table or (kinds(chosen) or ["minimum-norm"])[0], chosen, ks, mix)
        budgeted = sum(run.budget is not None for run in chosen)
        if table is None and 0 < budgeted < len(chosen):
            warn(f"{budgeted} runs with a budget are not in this table; --table fixed-budget shows them")
        for each in findings.errors(findings.findings(opened, chosen)):
            warn(f"error: {each.code}: {each.title}. {each.detail}", style="red")
        if form == "terminal" and out is None and not cost and against is None:
            for group in runs.groups(chosen, mix):
                echo(f"{group.title}: {output.sentence(group)}")
    made = replace(made, intervals=intervals)
    _write_table(made if against is None else against(made), form, out)


def _form(to: str | None, out: Path | None) -> str:
    """Return the format that --to names or the file's ending asks for."""
    if to is not None or out is None:
        return to or "terminal"
    if out.suffix.lower() not in ENDINGS:
        raise ValueError(f"-o {out}: end the name in one of {', '.join(ENDINGS)}, or give --to")
    return ENDINGS[out.suffix.lower()]


def _refuse(
    store: Path,
    more: list[Path] | None,
    out: Path | None,
    form: str,
    samples: int | None,
    table: str | None,
    cost: bool,
) -> None:
    """Refuse options that contradict each other."""
    if out is not None and out.resolve() in [each.resolve() for each in (store, *(more or []))]:
        raise ValueError(f"{out} is the store itself; name another file")
    if samples is not None and form != "page":
        raise ValueError(f"--samples {samples} is about a page; write one with -o report.html")
    if form == "page" and (table is not None or cost):
        what = f"--table {table}" if table else "--cost"
        raise ValueError(f"{what} does not go with a page, which has every table and both counts; leave it out")


def _write_page(out: Path, opened: Any, runs: Sequence[Run], trust_code: bool, **how: Any) -> None:
    """Write a page; say which code would have to run for its pictures."""
    from contextlib import suppress

    from sigmazero.bench.loader import Loader, UntrustedCode, clean_rows, origin, refuse_untrusted
    from sigmazero.report.pages.page import make_page
    from sigmazero.report.pages.render import save_page

    loader, specs = Loader("cpu", trust=inputs.trust(trust_code)), []
    for run in runs:
        with suppress(ValueError):  # where no origin is written the page itself says that there are no pictures
            specs.append(origin(run.info).data)
    try:
        refuse_untrusted(specs, loader.trust)
    except UntrustedCode as error:
        warn(f"no pictures: {error}")
    save_page(out, make_page(opened, partial(clean_rows, opened, loader=loader), **how))
    wrote(out)


def _compare(stores: Sequence[Path], ks: Sequence[float] | None, form: str, out: Path | None) -> None:
    """Write what differs between two stores, as a page, as text, or every row as CSV."""
    from sigmazero.report import compare as comparison
    from sigmazero.report.pages.render import save_page
    from sigmazero.report.runs import load
    from sigmazero.store.store import Store

    if len(stores) > 2:
        raise ValueError(f"{stores[2]}: two stores are compared; more of them make a site with --bundle DIR")
    with Store(stores[0]) as first, Store(stores[1]) as second:
        found = comparison.compare(load(first), load(second), (stores[0].name, stores[1].name), ks)
    if form == "page" and out is not None:
        save_page(out, found.to_page())
        wrote(out)
    elif form == "terminal" and out is None:
        _show_comparison(found)
    elif form in ("markdown", "csv"):
        _write(found.to_markdown() if form == "markdown" else found.to_csv(), out)
    else:
        raise ValueError(f"two stores are compared as terminal, markdown, csv or .html, not {form}")


def _show_comparison(found: comparison.Comparison) -> None:
    """Print the figures before and after, and the rows that changed most."""
    from sigmazero.report.compare import MAX_CHANGES, changed_rows, label

    echo(f"{found.names[0]} before, {found.names[1]} after")
    show(found.lines(), ("run", "figure"))
    for pair in found.pairs:
        echo(f"{label(pair)}: {found.counts(pair)}")
        if rows := changed_rows(pair)[:MAX_CHANGES]:
            show(rows)
    for line in found.alone:
        echo(line)


def _write_table(made: Table, form: str, path: Path | None) -> None:
    """Print a table, or write it to a file."""
    from sigmazero.report import formats, latex

    if path is None and form == "terminal":
        output.show_table(made)
        return
    writers: dict[str, Any] = {"markdown": formats.to_markdown, "csv": formats.to_csv, "latex": latex.to_latex}
    _write(writers[form](made) if form in writers else _terminal_text(made), path)


def _terminal_text(made: Table) -> str:
    """Return the table as the terminal shows it, without colours and with every cell on one line."""
    to = screen()
    to.file, to.width = StringIO(), 300
    output.show_table(made, to)
    return str(to.file.getvalue())


def _write(text: str, path: Path | None) -> None:
    """Print a text, or write it to a file."""
    if path is None:
        write(text)
        return
    output.write_text(text, path)
    wrote(path)
