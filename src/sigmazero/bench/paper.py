"""Tell the report what the names in the paper's tables stand for: it may load neither models nor attacks itself."""

from __future__ import annotations

from typing import Any

from sigmazero import attacks, models
from sigmazero.bench.identity import plain_parameters
from sigmazero.report.published import Usual


def usual() -> Usual:
    """Return the data sets of the zoo's models, and the parameters of registered attacks."""
    return Usual(_dataset, _parameters)


def _dataset(model: str) -> str | None:
    entry = models.find(model)
    return None if entry is None else entry.dataset


def _parameters(attack: str) -> dict[str, Any] | None:
    return plain_parameters(attacks.get(attack)) if attack in attacks.ATTACKS else None
