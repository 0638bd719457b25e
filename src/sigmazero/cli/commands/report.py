"""`sigmazero report`: print tables of a store, write a page, or compare two stores."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sigmazero.cli import inputs, options, output
from sigmazero.cli.console import echo, show, warn, wrote

if TYPE_CHECKING:
    from sigmazero.report.runs import Run
    from sigmazero.store.facts import CellInfo

LEAD = (
    "Robust accuracy: the share of samples that stay correct although some input values change. A sample counts as "
    "fooled if any of the attacks fooled it, and every success was verified on the model. A better attack can only "
    "lower these numbers."
)
FORMATS = {".md": "markdown", ".csv": "csv", ".tex": "latex", ".html": "page"}


def report(
    store: options.StoreFile,
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="STORE ...", help="A store to compare with; several with --bundle.")
    ] = None,
    out: Path | None = typer.Option(
        None, "--out", "-o", metavar="FILE", help="Write a table (.md, .csv, .tex) or a page (.html)."
    ),
    to: Literal["terminal", "markdown", "csv", "latex"] | None = typer.Option(
        None, help="Format of the table; by default by the ending of -o."
    ),
    table: Literal["minimum-norm", "fixed-budget"] | None = typer.Option(
        None, help="Which table; by default one that the store has."
    ),
    k: options.Ks = None,
    cost: options.Cost = False,
    intervals: bool = typer.Option(False, "--intervals", help="Show 95 % intervals."),
    compare: Literal["paper"] | None = typer.Option(None, help="Show the paper's figures beside ours."),
    samples: int | None = typer.Option(
        None, metavar="N", help="Samples of each data set on a page; by default as many as fit into 5 MB."
    ),
    bundle: Path | None = typer.Option(
        None, metavar="DIR", help="Write a leaderboard of the models of all stores, as a site."
    ),
    mix: options.Mix = False,
    trust_code: options.TrustCode = False,
) -> None:
    """Print a table, write a page, or compare stores.

    The strongest attack comes first. A sample that was not fooled counts as ∞. A run with a budget has only the
    success rate at that budget. Two stores are compared sample by sample.

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
    from sigmazero.report import findings, formats, latex, published
    from sigmazero.report.sentence import sentences
    from sigmazero.report.table import build, kinds
    from sigmazero.store.store import Store

    form, stores = _form(to, out), [store, *(more or [])]
    ks: Sequence[float] | None = inputs.numbers(k)
    output.check_files([out] if out else [], stores)
    if samples is not None and form != "page":
        raise ValueError(f"--samples {samples} needs a page; write one with -o report.html")
    if bundle is not None:
        _write_bundle(bundle, stores, ks, mix)
        return
    if more:
        _compare(stores, ks, form, out)
        return
    against = None if compare is None else partial(published.compare, usual=usual())
    with Store(store) as opened:
        chosen = output.stored_runs(opened)
        ks = ks or (published.KS if against else None)
        if form == "page" and out is not None:
            if table is not None or cost:
                raise ValueError("a page has every table, with changes and costs; leave --table and --cost out")
            _write_page(out, opened, chosen, trust_code, ks=ks, mix=mix, compare=against, limit=samples)
            return
        chosen = inputs.priced(chosen) if cost else chosen
        made = build(table or (kinds(chosen) or ["minimum-norm"])[0], chosen, ks, mix)
        budgeted = sum(run.budget is not None for run in chosen)
        if table is None and 0 < budgeted < len(chosen):
            warn(f"{budgeted} runs with a budget are in another table; see it with --table fixed-budget")
        output.show_errors(findings.errors(findings.findings(opened, chosen)))
    made = replace(made if against is None else against(made), intervals=intervals)
    if form is not None:
        texts = {"markdown": formats.to_markdown, "csv": formats.to_csv, "latex": latex.to_latex}
        _write(texts[form](made), out)
        return
    for line in sentences(chosen, mix) if not cost and against is None else ():
        echo(line)
    output.show_table(made)


def _form(to: str | None, out: Path | None) -> str | None:
    """Return the format by --to or by the file's ending; None for the terminal."""
    if to is not None or out is None:
        return None if to == "terminal" else to
    if out.suffix.lower() not in FORMATS:
        raise ValueError(f"-o {out}: end the name in one of {', '.join(FORMATS)}, or give --to")
    return FORMATS[out.suffix.lower()]


def _write_page(out: Path, opened: Any, runs: Sequence[Run], trust_code: bool, **how: Any) -> None:
    """Write a page; if its pictures need code that is not trusted, say so."""
    from sigmazero.bench.loader import UntrustedCode, clean_rows, origin, refuse_untrusted
    from sigmazero.report.pages.page import make_page

    loader, specs = inputs.loader(trust_code, "cpu"), []
    for run in runs:
        with suppress(ValueError):  # without an origin the page itself says why it has no pictures
            specs.append(origin(run.info).data)
    try:
        refuse_untrusted(specs, loader.trust)
    except UntrustedCode as error:
        warn(f"no pictures: {error}")
    _write(make_page(opened, partial(clean_rows, opened, loader=loader), **how), out)


def _compare(stores: Sequence[Path], ks: Sequence[float] | None, form: str | None, out: Path | None) -> None:
    """Print or write the differences between two stores."""
    from sigmazero.report import compare
    from sigmazero.report.runs import load
    from sigmazero.store.store import Store

    if len(stores) > 2:
        raise ValueError(f"{stores[2]}: only two stores can be compared; --bundle DIR makes a site of several")
    with Store(stores[0]) as first, Store(stores[1]) as second:
        found = compare.compare(load(first), load(second), (stores[0].name, stores[1].name), ks)
    if form is not None:
        texts = {"page": found.to_page, "markdown": found.to_markdown, "csv": found.to_csv}
        if form not in texts:
            raise ValueError(f"a comparison of two stores can be markdown, csv or .html, not {form}")
        _write(texts[form](), out)
        return
    echo(f"{found.names[0]} before, {found.names[1]} after")
    show(found.lines(), ("run", "figure"))
    for pair in found.pairs:
        echo(f"{compare.label(pair)}: {found.counts(pair)}")
        if rows := compare.changed_rows(pair)[: compare.MAX_CHANGES]:
            show(rows)
    for line in found.alone:
        echo(line)


def _write_bundle(folder: Path, stores: Sequence[Path], ks: Sequence[float] | None, mix: bool) -> None:
    """Write a leaderboard of all models of the stores."""
    from sigmazero.bench.loader import Loader, clean_rows
    from sigmazero.board.pages import zoo_card
    from sigmazero.report.pages.leaderboard import TITLE, Card, Source, boards, write_site
    from sigmazero.store.store import Store

    def card(info: CellInfo) -> Card:
        spec = str(info.origin.get("model", {}).get("spec", ""))
        file = {} if spec == info.model else {"loaded as": Path(spec).name}  # its folders may name a person
        return Card({**zoo_card(spec), **file, "SHA-256 of the weights": info.model_sha256})

    with ExitStack() as opened:
        sources = [
            Source(one, card, partial(clean_rows, one, loader=Loader("cpu")))
            for one in [opened.enter_context(Store(each)) for each in stores]
        ]
        write_site(folder, TITLE, LEAD, boards(sources, lambda _: ks, mix))
    wrote(folder / "index.html")


def _write(text: str, path: Path | None) -> None:
    """Write a text to a file, or print it."""
    if path is None:
        typer.echo(text, nl=False)
        return
    output.write_text(text, path)
    wrote(path)
