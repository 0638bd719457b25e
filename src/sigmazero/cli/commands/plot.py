"""`sigmazero plot`: draw a figure from a store."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sigmazero.cli import inputs, options, output
from sigmazero.cli.console import wrote

if TYPE_CHECKING:
    from sigmazero.report.figures.figure import Figure


def plot(
    store: options.StoreFile,
    figure: Annotated[
        str,
        typer.Argument(metavar="FIGURE", help="curves, pareto, pictures, confusion, heat, agreement or transfer."),
    ],
    out: Path | None = typer.Option(
        None, "--out", "-o", metavar="FILE", help="A .pdf, .svg or .png; FIGURE.png by default."
    ),
    setting: list[str] | None = typer.Option(
        None, "--set", metavar="KEY=VALUE", help="An option of the figure, such as log=true (repeatable)."
    ),
    cost: options.Cost = False,
    mix: options.Mix = False,
    trust_code: options.TrustCode = False,
) -> None:
    """Draw a figure from a store.

    curves takes log=true and until=K, pictures takes rows=N.

    \b
    Example:
      sigmazero plot runs/small.db curves -o curves.pdf --set log=true
      sigmazero plot runs/small.db pareto -o pareto.svg
      sigmazero plot runs/small.db pictures --set rows=4
    """
    from sigmazero.bench.loader import clean_rows
    from sigmazero.core.inputs import hint
    from sigmazero.report.figures import FIGURES
    from sigmazero.report.figures.figure import Request
    from sigmazero.report.runs import groups
    from sigmazero.store.store import Store

    if figure not in FIGURES:
        raise ValueError(f"there is no figure {figure!r}; {hint(figure, FIGURES)}")
    chosen, path = FIGURES[figure], out or Path(f"{figure}.png")
    values = {option.name: option.default for option in chosen.options} | _settings(setting, chosen)
    output.check_files([path], [store])
    with Store(store) as opened:
        clean = partial(clean_rows, opened, loader=inputs.loader(trust_code, "cpu"))
        runs = output.stored_runs(opened)
        runs = inputs.priced(runs) if cost else runs
        request = Request(groups(runs, mix), opened, clean, values)
        wrote(*chosen.write(request, path))


def _settings(pairs: list[str] | None, figure: Figure) -> dict[str, Any]:
    """Read --set; refuse an option that the figure does not have, or a value of the wrong type."""
    values, known = inputs.assignments(pairs), {option.name: option.kind for option in figure.options}
    for key, value in values.items():
        if key not in known:
            names = f"it has {', '.join(known)}" if known else "it has none"
            raise ValueError(f"--set {key}={value}: {figure.name} has no option {key!r}; {names}")
        if type(value) is not known[key]:
            kind = "true or false" if known[key] is bool else "a whole number"
            raise ValueError(f"--set {key}={value}: {key} must be {kind}")
    return values
