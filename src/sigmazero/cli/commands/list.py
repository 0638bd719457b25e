"""`sigmazero list`: what there is to choose from."""

import typer

from sigmazero.cli.catalogue import WORDS, attack_rows, dataset_rows, model_rows, without
from sigmazero.cli.console import out
from sigmazero.report.tables.text import rich_table

app = typer.Typer(no_args_is_help=True)


@app.callback()
def top() -> None:
    """Show the attacks, models and data sets there are.

    \b
    Example:
      sigmazero list attacks
    """


@app.command()
def attacks() -> None:
    """Every attack by name, with the defaults of its parameters.

    \b
    Example:
      sigmazero list attacks
    """
    rows = attack_rows()
    out().print(rich_table(without(rows, "defaults", "paper"), left=WORDS))
    for row in rows:
        out().print(f"{row['name']}: {row['defaults']}\n  {row['paper']}")


@app.command()
def models() -> None:
    """Every known model by code; docs/models.md says more about each.

    \b
    Example:
      sigmazero list models
    """
    out().print(rich_table(without(model_rows(), "parameters", "RobustBench name"), left=WORDS))


@app.command()
def datasets() -> None:
    """Every known data set by name; docs/models.md says where to get each.

    \b
    Example:
      sigmazero list datasets
    """
    out().print(rich_table(without(dataset_rows(), "files", "from"), left=WORDS))
