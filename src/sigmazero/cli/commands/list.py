"""`sigmazero list`: show the attacks, models and data sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sigmazero.cli import options
from sigmazero.cli.console import echo, screen, show

LEFT = ("name", "kind", "needs", "cost", "code", "model", "data set", "trained against", "weights", "what it is")
DETAILS = ("files", "from")  # shown of one model or data set alone

if TYPE_CHECKING:
    from sigmazero.core.attack import Attack

app = typer.Typer(**options.GROUP)


@app.command()
def show_list(
    kind: Annotated[
        Literal["attacks", "models", "datasets"], typer.Argument(metavar="KIND", help="attacks, models or datasets.")
    ],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show details of this one.")] = None,
    needs: Literal["gradients", "scores", "labels"] | None = typer.Option(
        None, help="Show only attacks that need this of a model."
    ),
) -> None:
    """Show what is available, or details of one: parameters of an attack, files of a model or a data set.

    Attacks that need only scores or labels also work on models with gradients.

    \b
    Example:
      sigmazero list attacks
      sigmazero list attacks sigma-zero
      sigmazero list attacks --needs scores
      sigmazero list models
      sigmazero list datasets
    """
    import sigmazero as sz
    from sigmazero.core.inputs import hint

    if needs is not None and (kind, name) != ("attacks", None):
        raise ValueError(f"--needs {needs} chooses attacks; write: sigmazero list attacks --needs {needs}")
    if name is None:
        rows = {"attacks": attack_rows, "models": model_rows, "datasets": dataset_rows}[kind]()
        show([short(row) for row in rows if needs in (None, row.get("needs"))], left=LEFT)
        echo(f"sigmazero list {kind} NAME shows more about one")
    elif kind == "attacks":
        _describe(sz.get(name))
    elif kind == "models":
        code = sz.models.get(name).code
        show([row for row in model_rows() if row["code"] == code], down=True)
    elif name in sz.data.DATASETS:
        show([row for row in dataset_rows() if row["name"] == name], down=True)
    else:
        raise ValueError(f"no data set is called {name!r}; {hint(name, sz.data.DATASETS)}")


def short(row: dict[str, str]) -> dict[str, str]:
    """Return what the list of all models or data sets shows of one."""
    return {name: text for name, text in row.items() if name not in DETAILS}


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


def dataset_rows() -> list[dict[str, str]]:
    """Return a row per known data set."""
    from sigmazero.data import DATASETS

    return [
        {
            "name": known.name,
            "what it is": known.description,
            "rows": f"{known.size:,}",
            "shape": "×".join(map(str, known.shape)),
            "classes": str(known.classes),
            "needs": "files" if known.needs else "extra data",
            "files": known.needs or "none",
            "from": known.published,
        }
        for known in DATASETS.values()
    ]


def model_rows() -> list[dict[str, str]]:
    """Return a row per model of the zoo."""
    from sigmazero import models

    rows = []
    for entry in models.entries().values():
        clean = entry.clean_accuracy or entry.implied_accuracy
        fetched = "fetch" if all(weight.url for weight in entry.weights) else "by hand"
        rows.append(
            {
                "code": entry.code,
                "model": entry.title,
                "data set": entry.dataset,
                "trained against": entry.threat_model,
                "clean %": "–" if clean is None else f"{clean:.2f}",
                "weights": "included" if entry.bundled else fetched,
                "files": ", ".join(each.file for each in entry.weights) or "none",
                "from": entry.source,
            }
        )
    return rows


def counts_pixels(attack: Attack) -> bool:
    """Return whether the budget of an attack counts pixels, even if the run counts features."""
    return attack.kind == "budget" and attack.parameters().get("group") == "pixel"


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
