"""`sigmazero docs`: the pages that are made from the code."""

from pathlib import Path
from typing import Annotated

import typer

from sigmazero.cli import catalogue as generated
from sigmazero.cli.console import err
from sigmazero.cli.show import show_path
from sigmazero.core.files import replacing


def docs(
    ctx: typer.Context,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit code 1 if a page is stale.")] = False,
    folder: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where the pages are.")] = Path("docs"),
) -> None:
    """Write the pages on commands, attacks, models and the doctor, for people who change sigmazero.

    \b
    Example:
      sigmazero docs --check
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder} here; run this in the repository, or name it with --dir")
    pages = generated.pages(ctx.find_root().command)
    stale = [name for name, text in pages.items() if generated.read(folder / name) != text]
    if check and stale:
        err().print(f"stale: {', '.join(stale)}; run: make docs", style="red", highlight=False)
        raise typer.Exit(1)
    for name in stale:
        with replacing(folder / name) as part:
            part.write_text(pages[name], encoding="utf-8")
        show_path(folder / name)
