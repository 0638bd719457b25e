"""Our attacks as foolbox's: `attack(fmodel, images, criterion, epsilons=[...])` gives (raw, clipped, is_adv).

Attacks that look for the fewest changes are foolbox's minimisation attacks; if all epsilons are numbers, the smallest
becomes the budget at which a sample stops. Those within a budget are its fixed-epsilon attacks. foolbox's own l0
distance refuses epsilons that are numbers, so `ChangeCount` stands in for it.
"""

from typing import Any

import torch
from torch import Tensor

from sigmazero.adapters._natives import Configured, Natives, configure, native
from sigmazero.adapters._peers import PEERS
from sigmazero.core.attack import Attack
from sigmazero.core.domain import count_features, count_pixels

__all__ = ["ChangeCount", "wrap"]


def _base() -> Any:
    return PEERS["foolbox"].load("attacks.base")


class ChangeCount:
    """The number of changes as a distance of foolbox: features, or positions with all their channels."""

    def __init__(self, unit: str = "feature") -> None:
        self.unit = unit

    def __repr__(self) -> str:
        return f"ChangeCount({self.unit!r})"

    def __call__(self, references: Any, perturbed: Any) -> Any:
        """Count the changes of each sample."""
        tensors = _base().ep
        (x, points), restore = tensors.astensors_(references, perturbed)
        return restore(tensors.astensor(self._count(points.raw, x.raw)))

    def clip_perturbation(self, references: Any, perturbed: Any, epsilon: float) -> Any:
        """Return the points; a sample with more changes than epsilon is the clean one again."""
        tensors = _base().ep
        (x, points), restore = tensors.astensors_(references, perturbed)
        within = (self._count(points.raw, x.raw) <= epsilon).view(-1, *[1] * (x.ndim - 1))
        return restore(tensors.astensor(torch.where(within, points.raw, x.raw)))

    def _count(self, points: Tensor, x: Tensor) -> Tensor:
        return (count_pixels if self.unit == "pixel" else count_features)(points, x).to(x.dtype)


class FoolboxAttack:
    """an attack of foolbox."""

    sigmazero: Attack

    def __init__(self, **options: Any) -> None:
        self.configured: Configured = configure(self.sigmazero, options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.configured.attack})"

    @property
    def distance(self) -> ChangeCount:
        """Return the count of changes, in the unit of the options."""
        return ChangeCount(self.configured.how.get("unit", "feature"))

    def run(
        self,
        model: Any,
        inputs: Any,
        criterion: Any,
        *,
        early_stop: float | None = None,
        epsilon: float | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the sparsest inputs, or those with at most epsilon changes; clean ones where there is none."""
        _base().raise_if_kwargs(kwargs)
        budget = early_stop if epsilon is None else epsilon
        tensors = _base().ep
        x, restore = tensors.astensor_(inputs)
        criteria, criterion = PEERS["foolbox"].load("criteria"), _base().get_criterion(criterion)
        targeted = isinstance(criterion, criteria.TargetedMisclassification)
        if not targeted and not isinstance(criterion, criteria.Misclassification):
            wanted = "Misclassification or TargetedMisclassification"
            raise ValueError(f"the criterion is a {type(criterion).__name__}; use {wanted}")
        y = (criterion.target_classes if targeted else criterion.labels).raw
        how: dict[str, Any] = {} if budget is None else {"budget": int(budget)}
        bounds = (float(model.bounds.lower), float(model.bounds.upper))
        options: dict[str, Any] = {"targeted": targeted, "bounds": bounds, **how}
        if self.sigmazero.kind == "budget":
            return restore(tensors.astensor(self.configured.inputs(model, x.raw, y, **options)))
        # At each epsilon foolbox itself counts the changes of what a minimisation attack returns.
        return restore(tensors.astensor(self.configured.run(model, x.raw, y, **options).x_adv))


def _native(attack: Attack) -> Any:
    base = _base().FixedEpsilonAttack if attack.kind == "budget" else _base().MinimizationAttack
    return native((FoolboxAttack, base), attack, __name__)


def wrap(attack: str | Attack, **options: Any) -> Any:
    """Return an attack of ours, by name or as an object, as one of foolbox's."""
    return _native(configure(attack, {}).attack)(**options)


__getattr__ = Natives(__name__, _native, __all__)
__dir__ = __getattr__.names
