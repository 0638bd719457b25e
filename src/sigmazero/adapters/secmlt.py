"""Our attacks as secml-torch's: `SigmaZero(y_target=None, lb=0.0, ub=1.0, steps=100)(model, data_loader)`.

They take its classifiers or a module, return a loader of adversarial inputs and their labels, or stream them, and its
trackers see every query.
"""

from typing import Any

import torch
from torch import Tensor

from sigmazero.adapters._natives import Inside, Natives, configure, native
from sigmazero.adapters._peers import PEERS
from sigmazero.core.attack import Attack

__all__ = ["wrap"]


class SecmltAttack:
    """an evasion attack of secml-torch."""

    sigmazero: Attack
    trackers: Any  # a property of secml-torch's own base class

    def __init__(
        self,
        y_target: int | None = None,
        lb: float = 0.0,
        ub: float = 1.0,
        trackers: Any = None,
        **options: Any,
    ) -> None:
        self.configured = configure(self.sigmazero, options)
        self.y_target, self.lb, self.ub, self.trackers = y_target, lb, ub, trackers

    @classmethod
    def _trackers_allowed(cls) -> bool:
        return True

    @staticmethod
    def get_perturbation_models() -> set[str]:
        """Return the norm that these attacks keep small."""
        return {"l0"}

    def _run(self, model: Any, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return adversarial inputs, and their differences from the clean ones."""
        device = next(model.model.parameters(), torch.zeros(0)).device
        x, y = samples.to(device), labels.to(device)
        goal = y if self.y_target is None else torch.full_like(y, self.y_target)
        targeted, tracked = self.y_target is not None, None
        if self.trackers:
            tracked = PEERS["secml-torch"].load("trackers.model_tracker").ModelTracker(model, trackers=self.trackers)
            tracked.init_tracking(x_orig=x, y=goal)
        inside = Inside(model.model, model if tracked is None else tracked)
        try:
            found = self.configured.inputs(inside, x, goal, targeted=targeted, bounds=(self.lb, self.ub))
        finally:
            if tracked is not None:
                tracked.end_tracking()
                tracked.detach()
        return found, found - x


def _native(attack: Attack) -> Any:
    base = PEERS["secml-torch"].load("adv.evasion.base_evasion_attack").BaseEvasionAttack
    return native((SecmltAttack, base), attack, __name__)


def wrap(attack: str | Attack, **options: Any) -> Any:
    """Return an attack of ours, by name or as an object, as one of secml-torch's."""
    return _native(configure(attack, {}).attack)(**options)


__getattr__ = Natives(__name__, _native, __all__)
__dir__ = __getattr__.names
