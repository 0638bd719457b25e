"""`sigmazero list`: show the attacks, models and data sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sigmazero.cli import options
from sigmazero.cli.console import echo, screen, show

if TYPE_CHECKING:
    from sigmazero import models as zoo
    from sigmazero.core.attack import Attack

app = typer.Typer(**options.GROUP)


@app.callback()
def top() -> None:
    """Show what is available, or details of one.

    \b
    Example:
      sigmazero list attacks
    """


@app.command()
def attacks(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show details of this attack.")] = None,
    needs: Literal["gradients", "scores", "labels"] | None = typer.Option(
        None, help="Show only attacks that need this of a model."
    ),
) -> None:
    """List the attacks, or show what one does and its parameters.

    Attacks that need only scores or labels also work on models with gradients.

    \b
    Example:
      sigmazero list attacks
      sigmazero list attacks sigma-zero
      sigmazero list attacks --needs scores
    """
    import sigmazero as sz

    if name is not None:
        _describe(sz.get(name))
        return
    some = [row for row in attack_rows() if needs in (None, row["needs"])]
    show(some, left=("name", "kind", "needs", "cost", "paper"))
    echo("sigmazero list attacks NAME shows what an attack does, and its parameters")


@app.command()
def models() -> None:
    """List the known models; `sigmazero fetch CODE` downloads the weights of one.

    \b
    Example:
      sigmazero list models
    """
    show(model_rows(), left=("code", "model", "data set", "trained against", "weights"))


@app.command()
def datasets() -> None:
    """List the known data sets.

    \b
    Example:
      sigmazero list datasets
    """
    from sigmazero.data import DATASETS

    lines = [
        {
            "name": known.name,
            "what it is": known.description,
            "rows": f"{known.size:,}",
            "shape": "×".join(map(str, known.shape)),
            "classes": str(known.classes),
            "needs": "files" if known.needs else "extra data",
        }
        for known in DATASETS.values()
    ]
    show(lines, left=("name", "what it is"))


def attack_rows() -> list[dict[str, str]]:
    """Return a row per attack of the registry."""
    from sigmazero.attacks import ATTACKS

    return [
        {
            "name": attack.name,
            "kind": f"{attack.kind} of pixels" if counts_pixels(attack) else attack.kind,
            "needs": attack.needs,
            "cost": attack.asks.replace("`", ""),
        }
        for attack in ATTACKS.values()
    ]


def counts_pixels(attack: Attack) -> bool:
    """Return whether the budget of an attack counts pixels, even if the run counts features."""
    return attack.kind == "budget" and attack.parameters().get("group") == "pixel"


def model_rows() -> list[dict[str, str]]:
    """Return a row per model of the zoo."""
    from sigmazero import models as zoo

    return [
        {
            "code": entry.code,
            "model": entry.title,
            "data set": entry.dataset,
            "trained against": entry.threat_model,
            "clean %": "–" if (clean := entry.clean_accuracy or entry.implied_accuracy) is None else f"{clean:.2f}",
            "weights": _weights(entry),
        }
        for entry in zoo.entries().values()
    ]


def _weights(entry: zoo.ZooEntry) -> str:
    if entry.bundled:
        return "included"
    return "fetch" if all(weight.url for weight in entry.weights) else "by hand"


def _describe(attack: Attack) -> None:
    """Print what an attack does, what it needs, and its parameters."""
    from sigmazero.attacks.registry import idea, parameter_rows

    echo(attack.name, style="bold")
    screen().print(idea(attack))
    goals = " and ".join(attack.goals)
    echo(f"{attack.kind}, {goals}; needs {attack.needs}; {attack.asks}".replace("`", "").rstrip("; "))
    if counts_pixels(attack):
        echo("Its budget counts pixels, with all their channels, even if a run counts features.")
    echo(attack.paper)
    show(parameter_rows(attack), left=("parameter", "default", "meaning"))
    echo(f"change one with: --set KEY=VALUE, or in Python sz.get({attack.name!r}, KEY=VALUE)")
