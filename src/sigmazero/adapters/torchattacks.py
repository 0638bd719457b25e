"""Our attacks as torchattacks': `attack = SigmaZero(model, steps=100); adv = attack(images, labels)`.

The modes for targets, `set_normalization_used`, `save` and `MultiAttack` work as for its own attacks. Where a
normalisation is set, the search runs on normalised values: a feature that is not changed keeps its bits, which a way to
[0, 1] and back would change. `budget=k`, or `eps=k`, is the number of changes allowed.
"""

from typing import Any

import torch
from torch import Tensor

from sigmazero.adapters._natives import Natives, configure, native
from sigmazero.adapters._peers import PEERS
from sigmazero.core.attack import Attack

__all__ = ["wrap"]


class TorchAttack:
    """an attack of torchattacks."""

    sigmazero: Attack
    # What torchattacks' own base class has.
    model: Any
    device: Any
    targeted: bool
    attack_mode: str
    _model_training: bool
    _normalization_applied: bool | None

    def __init__(self, model: Any, **options: Any) -> None:
        if "eps" in options:
            options["budget"] = options.pop("eps")
        super().__init__(self.sigmazero.name, model)  # type: ignore[call-arg]
        self.configured = configure(self.sigmazero, options)
        modes = {"untargeted": "default", "targeted": "targeted"}
        self.supported_mode = [modes[goal] for goal in self.configured.attack.goals]

    def __call__(self, inputs: Tensor, labels: Tensor | None = None, *_: Any, **__: Any) -> Tensor:
        """Return adversarial inputs, on the model's device; clean ones where there is none."""
        return self.forward(inputs, labels)

    def forward(self, inputs: Tensor, labels: Tensor | None = None, *_: Any, **__: Any) -> Tensor:
        """Return adversarial inputs, as torchattacks' own attacks do."""
        if self._model_training:
            raise ValueError("model_training=True: an attack needs answers that stay the same; leave it False")
        peer: Any = self
        x = inputs.detach().to(self.device)
        y = peer.get_output_with_eval_nograd(x).argmax(1) if labels is None else labels.detach().to(self.device)
        if self.targeted:
            # A function of the user's is shown images in [0, 1].
            inverted = self._normalization_applied and self.attack_mode == "targeted(custom)"
            y = peer.get_target_label(peer.inverse_normalize(x) if inverted else x, y).to(self.device)
        how = {"bounds": self._box(x)} if self._normalization_applied else {}
        return self.configured.inputs(self.model, x, y, targeted=self.targeted, **how)

    def _box(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return [0, 1] after the normalisation, or a little more where the inputs were rounded otherwise."""
        peer: Any = self
        lower, upper = (peer.normalize(torch.full_like(x[:1, :, :1, :1], end)) for end in (0.0, 1.0))
        slack = 1e-5 * (upper - lower)
        least, most = x.amin((0, 2, 3), keepdim=True), x.amax((0, 2, 3), keepdim=True)
        lower = torch.where((least < lower) & (least > lower - slack), least, lower)
        upper = torch.where((most > upper) & (most < upper + slack), most, upper)
        return lower[0], upper[0]


def _native(attack: Attack) -> Any:
    return native((TorchAttack, PEERS["torchattacks"].load("attack").Attack), attack, __name__)


def wrap(attack: str | Attack, model: Any, **options: Any) -> Any:
    """Return an attack of ours, by name or as an object, as one of torchattacks'."""
    return _native(configure(attack, {}).attack)(model, **options)


__getattr__ = Natives(__name__, _native, __all__)
__dir__ = __getattr__.names
