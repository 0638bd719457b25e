"""`sigmazero plot`: a figure of a store."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from sigmazero.cli import inputs, options
from sigmazero.cli.console import wrote

FigureName = Annotated[
    str,
    typer.Argument(metavar="FIGURE", help="curves, pareto, pictures, confusion, heat, agreement or transfer."),
]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FILE", help="A .pdf, .svg or .png; FIGURE.png by default.")
]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the figure, such as log=true (repeatable)."),
]


def plot(
    store: options.StoreFile,
    figure: FigureName,
    out: Out = None,
    setting: Setting = None,
    k: options.Ks = None,
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
    from sigmazero.bench.loader import Loader, clean_rows
    from sigmazero.core.inputs import hint
    from sigmazero.report.figures import FIGURES
    from sigmazero.report.figures.figure import Request
    from sigmazero.report.runs import groups, load
    from sigmazero.store.store import Store

    if figure not in FIGURES:
        raise ValueError(f"there is no figure {figure!r}; {hint(figure, FIGURES)}")
    chosen, path = FIGURES[figure], out or Path(f"{figure}.png")
    values = {option.name: option.default for option in chosen.options} | _read(setting or [], chosen)
    if path.resolve() == store.resolve():
        raise ValueError(f"{path} is the store itself; name another file")
    with Store(store) as opened:
        clean = partial(clean_rows, opened, loader=Loader("cpu", trust=inputs.trust(trust_code)))
        runs = inputs.priced(load(opened)) if cost else load(opened)
        request = Request(groups(runs, mix), opened, clean, inputs.numbers(k, cost) or (), values)
        wrote(*chosen.write(request, path))


def _read(pairs: list[str], figure: Any) -> dict[str, Any]:
    """Read each --set KEY=VALUE."""
    known = {option.name: option.kind for option in figure.options}
    found: dict[str, Any] = {}
    for pair in pairs:
        key, _, text = pair.partition("=")
        if key not in known:
            names = f"it has {', '.join(known)}" if known else "it has none"
            raise ValueError(f"--set {pair}: {figure.name} has no option {key!r}; {names}")
        found[key] = inputs.value(key, text, known[key]())
    return found
