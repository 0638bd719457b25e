"""`sigmazero view`: a store in the browser, while it is being filled."""

from __future__ import annotations

import webbrowser
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from sigmazero.cli import inputs, options
from sigmazero.cli.console import echo, warn

if TYPE_CHECKING:
    from sigmazero.store.store import Store

EVERY, SAMPLES = 2.0, 24  # seconds between two looks at the store; samples per data set with pictures
Port = Annotated[
    int, typer.Option("--port", metavar="N", min=0, max=65535, help="Where to listen; 0: where it is free.")
]
Open = Annotated[bool, typer.Option("--open", help="Open it in the browser.")]


def view(store: options.StoreFile, port: Port = 0, open_: Open = False, trust_code: options.TrustCode = False) -> None:
    """Open a live report in the browser; Ctrl-C ends it.

    The page is served on this machine alone (127.0.0.1), to whoever has the address with its random token. The store
    is only read.

    \b
    Example:
      sigmazero view runs/small.db --open
    """
    from sigmazero.bench.loader import Loader, clean_rows
    from sigmazero.report.pages.page import make_page
    from sigmazero.report.pages.serve import LiveServer
    from sigmazero.store.store import Store

    with Store(store):  # a file that is not a store is refused here, with the reason
        pass
    loader = Loader("cpu", trust=inputs.trust(trust_code))

    def render(opened: Store) -> str:
        return make_page(opened, partial(clean_rows, opened, loader=loader), limit=SAMPLES)

    try:
        server = LiveServer(store, render, port, EVERY)
    except OSError as error:
        raise OSError(f"--port {port} cannot be used ({error}); leave it out for a free one") from error
    with server:
        echo(server.url)
        warn("Ctrl-C ends it; a run goes on without it")
        if open_:
            webbrowser.open(server.url)
        server.serve_forever()
