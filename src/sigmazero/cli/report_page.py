"""`sigmazero report STORE -o report.html`: everything about a store as one page."""

from collections.abc import Container, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from sigmazero.bench.loader import UntrustedCode, origin, refuse_untrusted
from sigmazero.cli.console import tell
from sigmazero.report.runs import Run

SampleCount = Annotated[
    int | None,
    typer.Option("--samples", metavar="N", help="With a page: samples per data set; by default what 5 MB hold."),
]


def is_page(out: Path | None, to: str | None) -> bool:
    """Whether the name of the file asks for a page."""
    return to is None and out is not None and out.suffix.lower() in (".html", ".htm")


def refuse_for_page(page: bool, samples: int | None, table: str | None) -> None:
    """Raise if options contradict each other: a page has every table, and only a page has samples."""
    if samples is not None and not page:
        raise ValueError("--samples says how many samples a page shows; write one with -o report.html")
    if page and table is not None:
        raise ValueError(f"--table {table} does not go with a page, which has every table and its LaTeX; leave it out")


def say_untrusted(runs: Sequence[Run], trust: Container[str]) -> None:
    """Say which code would have to run for pictures, and how to allow it; the page is made without them."""
    specs = []
    for run in runs:
        with suppress(ValueError):  # where no origin is written the page itself says that there are no pictures
            specs.append(origin(run.info).data)
    try:
        refuse_untrusted(specs, trust)
    except UntrustedCode as error:
        tell(f"no pictures: {error}")
