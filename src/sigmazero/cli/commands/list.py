"""`sigmazero list`: what there is to choose from."""

from typing import Annotated

import typer

import sigmazero as sz
from sigmazero.attacks.registry import idea, parameter_rows
from sigmazero.cli.catalogue import WORDS, attack_rows, dataset_rows, model_rows, without
from sigmazero.cli.console import out, say
from sigmazero.core.model import ABILITIES, Ability
from sigmazero.report.formats import rich_table

app = typer.Typer(no_args_is_help=True)
AttackWanted = Annotated[str | None, typer.Argument(metavar="[NAME]", help="One attack, to read about it.")]
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
def attacks(name: AttackWanted = None, needs: Needs = None) -> None:
    """Every attack by name; or of one what it does, and its parameters with their defaults.

    What needs less works on a model that has more: a model with scores alone can be attacked by what needs scores or
    labels.

    \b
    Example:
      sigmazero list attacks
      sigmazero list attacks sigma-zero
      sigmazero list attacks --needs scores
    """
    if name is not None:
        _describe(sz.get(name))
        return
    out().print(rich_table(without(attack_rows(_ability(needs)), "goals", "paper"), left=WORDS))
    say("sigmazero list attacks NAME: what one does, and its parameters")


def _describe(attack: sz.Attack) -> None:
    """Print what there is to know of an attack before one uses it."""
    say(attack.name, style="bold")
    out().print(idea(attack))
    goals = " and ".join(attack.goals)
    say(f"{attack.kind}, {goals}; needs {attack.needs}; {attack.asks}".replace("`", "").rstrip("; "))
    say(attack.paper)
    out().print(rich_table(parameter_rows(attack), left=("parameter", "default", "meaning")))
    say(f"change one with: --set KEY=VALUE, or in Python sz.get({attack.name!r}, KEY=VALUE)")


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
