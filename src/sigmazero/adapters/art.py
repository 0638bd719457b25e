"""Our attacks as ART's: `SigmaZero(classifier, steps=100).generate(x, y)`, arrays in and arrays out.

A `PyTorchClassifier` gives gradients, its preprocessing included where that is differentiable; any other classifier
gives scores. `clip_values` are the bounds. With `targeted=True` y has the classes to reach, as indices or one-hot;
without y the attack leaves the classes that are predicted. `mask` of `generate` is 0 where a feature may not change.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sigmazero.adapters._natives import Inside, Natives, configure, native
from sigmazero.adapters._peers import PEERS
from sigmazero.core.attack import Attack

__all__ = ["wrap"]

COMMON = ("targeted", "batch_size")


class ArtAttack:
    """an evasion attack of ART."""

    sigmazero: Attack
    estimator: Any  # a property of ART's own base class

    def __init__(self, classifier: Any, targeted: bool = False, batch_size: int | None = None, **options: Any) -> None:
        super().__init__(estimator=classifier)  # type: ignore[call-arg]
        self.configured = configure(self.sigmazero, options)
        self.targeted, self.batch_size = targeted, batch_size
        for name, value in self.configured.attack.parameters().items():
            setattr(self, name, value)

    def set_params(self, **kwargs: Any) -> None:
        """Change some parameters."""
        own = {name: value for name, value in kwargs.items() if name not in COMMON}
        self.configured = configure(self.configured.attack, {**self.configured.how, **own})
        super().set_params(**kwargs)  # type: ignore[misc]

    def generate(self, x: Any, y: Any = None, mask: Any = None, **_: Any) -> Any:
        """Return adversarial inputs; clean ones where there is none."""
        if y is None and self.targeted:
            raise ValueError("targeted=True needs y, the classes to reach")
        model, device = _model(self.estimator)
        values = np.asarray(x, dtype=np.float32)
        inputs = torch.as_tensor(values, device=device)
        given = torch.as_tensor(self.estimator.predict(values) if y is None else y, device=device)
        one_hot = given.ndim == 2 and given.shape[1] > 1
        labels = given.argmax(1) if one_hot else given.reshape(-1).long()
        clip = self.estimator.clip_values  # none, two numbers, or two arrays
        ends = (-np.inf, np.inf) if clip is None else clip
        lower, upper = (torch.as_tensor(np.asarray(end), dtype=inputs.dtype, device=device) for end in ends)
        how: dict[str, Any] = {"bounds": (lower, upper)}
        if mask is not None:
            how["mask"] = torch.as_tensor(np.asarray(mask) != 0, device=device)
        found = self.configured.inputs(model, inputs, labels, targeted=self.targeted, batch_size=self.batch_size, **how)
        return found.cpu().numpy()


def _model(classifier: Any) -> tuple[Any, torch.device]:
    """Return the model to attack, and its device."""
    torch_kind = PEERS["art"].load("estimators.classification").PyTorchClassifier
    differentiable = PEERS["art"].load("defences.preprocessor.preprocessor").PreprocessorPyTorch
    if isinstance(classifier, torch_kind) and all(
        isinstance(step, differentiable) for step in classifier.preprocessing_operations
    ):

        def answer(x: Tensor) -> Tensor:
            prepared, _ = classifier._apply_preprocessing(x, y=None, fit=False, no_grad=False)
            logits: Tensor = classifier.model(prepared)
            return logits

        return Inside(classifier.model, answer), classifier.device
    return Scores(classifier), torch.device("cpu")


class Scores:
    """A classifier of ART without gradients."""

    ability = "scores"

    def __init__(self, classifier: Any) -> None:
        self.classifier = classifier

    def __call__(self, x: Tensor) -> Tensor:
        """Return the scores of a batch."""
        return torch.as_tensor(np.asarray(self.classifier.predict(x.detach().cpu().numpy())), dtype=x.dtype)


def _native(attack: Attack) -> Any:
    peer = PEERS["art"]
    made: Any = native((ArtAttack, peer.load("attacks.attack").EvasionAttack), attack, __name__)
    made.attack_params = [*COMMON, *attack.parameters()]
    classifier = peer.load("estimators.classification").ClassifierMixin
    made._estimator_requirements = (peer.load("estimators.estimator").BaseEstimator, classifier)
    return made


def wrap(attack: str | Attack, classifier: Any, **options: Any) -> Any:
    """Return an attack of ours, by name or as an object, as one of ART's."""
    return _native(configure(attack, {}).attack)(classifier, **options)


__getattr__ = Natives(__name__, _native, __all__)
__dir__ = __getattr__.names
