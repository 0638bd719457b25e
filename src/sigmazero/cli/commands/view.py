"""`sigmazero view`: a live report in the browser."""

from __future__ import annotations

import webbrowser
from functools import partial
from typing import TYPE_CHECKING

import typer

from sigmazero.cli import inputs, options
from sigmazero.cli.console import echo, warn

if TYPE_CHECKING:
    from sigmazero.store.store import Store

EVERY, SAMPLES = 2.0, 24  # seconds between updates; samples of each data set with pictures


def view(
    store: options.StoreFile,
    port: int = typer.Option(0, "--port", metavar="N", min=0, max=65535, help="Port to listen on; 0 is a free one."),
    open_: bool = typer.Option(False, "--open", help="Open the browser."),
    trust_code: options.TrustCode = False,
) -> None:
    """Open a live report in the browser; Ctrl-C ends it.

    Only this machine (127.0.0.1) can reach the page, and only by the address with its random token. The store is only
    read.

    \b
    Example:
      sigmazero view runs/small.db --open
    """
    from sigmazero.bench.loader import clean_rows
    from sigmazero.report.pages.page import make_page
    from sigmazero.report.pages.serve import LiveServer
    from sigmazero.store.store import Store

    with Store(store):  # a file that is not a store is refused here, with the reason
        pass
    loader = inputs.loader(trust_code, "cpu")

    def render(opened: Store) -> str:
        return make_page(opened, partial(clean_rows, opened, loader=loader), limit=SAMPLES)

    try:
        server = LiveServer(store, render, port, EVERY)
    except OSError as error:
        raise OSError(f"--port {port} cannot be used ({error}); leave it out to get a free one") from error
    with server:
        echo(server.url)
        warn("Ctrl-C closes the report; a run goes on")
        if open_:
            webbrowser.open(server.url)
        server.serve_forever()
