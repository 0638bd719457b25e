"""What the names in the paper's tables stand for here: models of the zoo, and registered attacks."""

from __future__ import annotations

from typing import Any

from sigmazero import attacks, models
from sigmazero.bench.identity import plain_parameters
from sigmazero.report.published import Usual


def usual() -> Usual:
    """The data sets that the zoo knows, and the parameters of the registry."""
    return Usual(_dataset, _parameters)


def _dataset(model: str) -> str | None:
    entry = models.find(model)
    return None if entry is None else entry.dataset


def _parameters(attack: str) -> dict[str, Any] | None:
    return plain_parameters(attacks.get(attack)) if attack in attacks.ATTACKS else None
