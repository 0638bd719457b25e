"""What there is to choose from, as rows of tables: attacks, models and data sets.

`sigmazero list` prints these rows, and `sigmazero docs` writes them into pages.
"""

from sigmazero import models
from sigmazero.attacks import ATTACKS
from sigmazero.core.attack import Attack
from sigmazero.core.model import Ability
from sigmazero.data import DATASETS

WORDS = (
    *("name", "kind", "goals", "cost", "paper", "code", "model", "data set", "trained against"),
    *("RobustBench name", "weights", "what it is", "shape", "needs", "from", "files"),
)


def attack_rows(needs: Ability | None = None) -> list[dict[str, str]]:
    """One row per attack of the registry; or of those that need exactly this of a model."""
    return [
        {
            "name": attack.name,
            "kind": f"{attack.kind} of pixels" if counts_pixels(attack) else attack.kind,
            "goals": ", ".join(attack.goals),
            "needs": attack.needs,
            "cost": attack.asks.replace("`", ""),
            "paper": attack.paper,
        }
        for attack in ATTACKS.values()
        if needs in (None, attack.needs)
    ]


def counts_pixels(attack: Attack) -> bool:
    """Whether an attack spends its budget on pixels, each with all its channels, even where a run counts features."""
    return attack.kind == "budget" and attack.parameters().get("group") == "pixel"


def model_rows() -> list[dict[str, str]]:
    """One row per model of the zoo."""
    return [
        {
            "code": entry.code,
            "model": entry.title,
            "data set": entry.dataset,
            "trained against": entry.threat_model,
            "clean %": _optional(entry.clean_accuracy or entry.implied_accuracy),
            "parameters": f"{entry.parameters:,}" if entry.parameters else "–",
            "RobustBench name": entry.robustbench or "–",
            "weights": _weights(entry),
        }
        for entry in models.entries().values()
    ]


def dataset_rows() -> list[dict[str, str]]:
    """One row per data set known by name."""
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


def without(rows: list[dict[str, str]], *names: str) -> list[dict[str, str]]:
    """The rows with fewer columns."""
    return [{name: text for name, text in row.items() if name not in names} for row in rows]


def _optional(figure: float | None) -> str:
    return "–" if figure is None else f"{figure:.2f}"


def _weights(entry: models.ZooEntry) -> str:
    if entry.bundled:
        return "included"
    return "fetch" if all(weight.url for weight in entry.weights) else "by hand"
