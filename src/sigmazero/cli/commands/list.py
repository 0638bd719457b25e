"""`sigmazero list`: what there is to choose from."""

from typing import Annotated

import typer

from sigmazero.cli.catalogue import WORDS, attack_rows, dataset_rows, model_rows, without
from sigmazero.cli.console import out
from sigmazero.core.ability import ABILITIES, Ability
from sigmazero.report.tables.text import rich_table

app = typer.Typer(no_args_is_help=True)
Needs = Annotated[
    str | None, typer.Option(metavar="WORD", help="Those alone that need gradients, scores or labels of a model.")
]


@app.callback()
def top() -> None:
    """Show the attacks, models and data sets there are.

    \b
    Example:
      sigmazero list attacks
    """


@app.command()
def attacks(needs: Needs = None) -> None:
    """Every attack by name, with the defaults of its parameters.

    What needs less works on a model that has more: a model with scores alone can be attacked by what needs scores or
    labels.

    \b
    Example:
      sigmazero list attacks
      sigmazero list attacks --needs scores
    """
    rows = attack_rows(_ability(needs))
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


def _ability(needs: str | None) -> Ability | None:
    if needs is None:
        return None
    for known in ABILITIES:
        if needs == known:
            return known
    raise ValueError(f"--needs {needs} is not one of {', '.join(ABILITIES)}")
