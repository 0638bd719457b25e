"""`sigmazero view`: a store in the browser, while it is being filled."""

import webbrowser
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from sigmazero.bench.loader import Loader, clean_rows
from sigmazero.cli import options
from sigmazero.cli.console import say, tell
from sigmazero.report.pages.page import make_page
from sigmazero.report.pages.serve import LiveServer
from sigmazero.store.store import Store

Port = Annotated[
    int, typer.Option("--port", metavar="N", min=0, max=65535, help="Where to listen; 0: where it is free.")
]
Every = Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.1, help="How often the page asks again.")]
Open = Annotated[bool, typer.Option("--open", help="Open it in the browser.")]
Pictures = Annotated[int | None, typer.Option("--samples", metavar="N", help="Samples per data set with pictures.")]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="Folder with data files, for pictures.")
]


def view(
    store: options.StoreFile,
    port: Port = 0,
    every: Every = 2.0,
    open_: Open = False,
    samples: Pictures = 24,
    data_dir: DataDir = None,
    trust_code: options.TrustCode = False,
) -> None:
    """Show a store in the browser and keep it up to date while a run fills it; Ctrl-C ends it.

    The page is served on this machine alone (127.0.0.1), to whoever has the address with its random token. The store
    is only read.

    \b
    Example:
      sigmazero view runs/small.db --open
    """
    with Store(store):  # a file that is no store is refused here, with the reason
        pass
    loader = Loader("cpu", data_dir=data_dir, trust=options.trust(trust_code))

    def render(opened: Store) -> str:
        return make_page(opened, partial(clean_rows, opened, loader=loader), limit=samples)

    try:
        server = LiveServer(store, render, port, every)
    except OSError as error:
        raise OSError(f"--port {port} cannot be used ({error}); leave it out for a free one") from error
    with server:
        say(server.url)
        tell("Ctrl-C ends it; a run goes on without it")
        if open_:
            webbrowser.open(server.url)
        server.serve_forever()
