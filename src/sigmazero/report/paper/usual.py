"""Whether a cell is about the model and the attack that it names: a plan may give any name to anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sigmazero.store.facts import CellInfo


@dataclass(frozen=True)
class Usual:
    """What the paper's names stand for: the data set of a model, and the parameters of an attack; None if unknown."""

    dataset: Callable[[str], str | None]
    parameters: Callable[[str], Mapping[str, Any] | None]

    def inputs(self, info: CellInfo, model: str) -> bool:
        """Whether a known model has its published weights and is asked about its own data set, or some rows of it."""
        dataset, source = self.dataset(model), info.origin.get("data", {}).get("source")
        own = info.origin.get("model", {}).get("weights") is not None
        return not own and (dataset is None or source is None or source == dataset)

    def attack(self, info: CellInfo) -> bool:
        """Whether it is the registered attack of that name with its usual parameters, whatever the number of steps."""
        usual = self.parameters(info.attack)
        if usual is None:
            return False
        return all(info.parameters.get(name, value) == value for name, value in usual.items() if name != "steps")
