"""How the attacks of each library are called, and which of them somebody means.

Every caller is handed a model, inputs in [0, 1] and labels, and returns inputs; the rest is its library's convention.
"""

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sigmazero.adapters._caller import Caller, as_tensor
from sigmazero.adapters._peers import PEERS
from sigmazero.core.inputs import hint

# Attacks of ART without a switch for targets whose labels are always classes to reach.
REACHING = ("SaliencyMapMethod", "LowProFool", "DecisionTreeAttack", "TargetedUniversalPerturbation")


class FoolboxCaller(Caller):
    """foolbox: an attack object, a model with bounds, a criterion, epsilons."""

    @property
    def extra(self) -> tuple[str, ...]:
        """The size of a perturbation is given with the call."""
        return ("epsilons",)

    def check(self, name: str, targeted: bool) -> None:
        """Whether there is a targeted form, only the attack itself knows."""

    def call(self, model: nn.Module, x: Tensor, y: Tensor, targeted: bool, options: dict[str, Any]) -> Tensor:
        """The clipped points of the last epsilon; without epsilons those of smallest size."""
        foolbox = PEERS["foolbox"].load()
        epsilons = options.pop("epsilons", None)
        attack = self.thing if self.made else self.thing(**options)
        criterion = foolbox.criteria.TargetedMisclassification(y) if targeted else foolbox.criteria.Misclassification(y)
        wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device=x.device)
        _, clipped, _ = attack(wrapped, x, criterion, epsilons=epsilons)
        return as_tensor(clipped[-1] if isinstance(clipped, list) else clipped, self.title)


class TorchattacksCaller(Caller):
    """torchattacks: an object that knows its model, and modes for targets."""

    def check(self, name: str, targeted: bool) -> None:
        """Whether there is a targeted form, only the attack itself knows."""

    def call(self, model: nn.Module, x: Tensor, y: Tensor, targeted: bool, options: dict[str, Any]) -> Tensor:
        """Inputs are in [0, 1] here, whatever the model takes: it needs no normalisation of its own."""
        if self.made:
            attack = object.__new__(type(self.thing))
            attack.__dict__.update(self.thing.__dict__)
            attack.set_model(model)
            attack.__dict__ |= {"device": x.device, "normalization_used": None, "_normalization_applied": None}
        else:
            attack = self.thing(model, **options)
        if targeted:
            attack.set_mode_targeted_by_label(quiet=True)
        return as_tensor(attack(x, y), self.title)


class ArtCaller(Caller):
    """ART: an attack on a classifier object; arrays in, arrays out."""

    def check(self, name: str, targeted: bool) -> None:
        """An attack has a switch for targets, or takes labels for them, or would take targets for true classes."""
        kind = type(self.thing) if self.made else self.thing
        if targeted and "targeted" not in kind.attack_params and self.method not in REACHING:
            raise ValueError(f"{name} has no targeted form: it takes no argument 'targeted'")

    def call(self, model: nn.Module, x: Tensor, y: Tensor, targeted: bool, options: dict[str, Any]) -> Tensor:
        """The classifier must know the number of classes, for which the model is asked once."""
        estimators = PEERS["art"].load("estimators.classification")
        with torch.no_grad():
            classes = model(x).shape[1]
        classifier = estimators.PyTorchClassifier(
            model=model,
            loss=nn.CrossEntropyLoss(),
            input_shape=tuple(x.shape[1:]),
            nb_classes=classes,
            clip_values=(0.0, 1.0),
            device_type="gpu" if x.is_cuda else "cpu",
        )
        kind = type(self.thing) if self.made else self.thing
        if self.made:
            options = {n: getattr(self.thing, n) for n in self.thing.attack_params if hasattr(self.thing, n)}
        for quiet in ("verbose", "summary_writer"):
            if quiet in inspect.signature(kind).parameters:
                options.setdefault(quiet, False)
        if "targeted" in kind.attack_params:
            options["targeted"] = targeted
        attack = kind(classifier, **options)
        # Without a switch for it, labels are classes to reach: it has a goal of its own if none is named.
        given = {"y": y.cpu().numpy()} if targeted or "targeted" in kind.attack_params else {}
        return as_tensor(attack.generate(x=x.cpu().numpy(), **given), self.title)


class AdvLibCaller(Caller):
    """adv-lib: a function."""


CALLERS: dict[str, tuple[type[Caller], str]] = {
    "foolbox": (FoolboxCaller, "attacks"),
    "torchattacks": (TorchattacksCaller, ""),
    "art": (ArtCaller, "attacks.evasion"),
    "adv-lib": (AdvLibCaller, "attacks"),
}


def is_foreign(name: str) -> bool:
    """Whether a name is that of an attack in another library.

    >>> is_foreign("foolbox:L0FMNAttack"), is_foreign("sigma-zero"), is_foreign("net.py:build")
    (True, False, False)
    """
    return name.partition(":")[0] in CALLERS and ":" in name


@functools.lru_cache(maxsize=256)
def named(peer: str, method: str) -> Caller:
    """An attack of a library by name."""
    if peer not in CALLERS:
        raise ValueError(f"there is no bridge to {peer!r}; {hint(peer, CALLERS)}")
    kind, part = CALLERS[peer]
    module = PEERS[peer].load(part)
    known = _attacks(vars(module), peer)
    if method not in known:
        near = difflib.get_close_matches(method, known, n=1)
        advice = f"did you mean {near[0]!r}?" if near else f"see dir({module.__name__})"
        raise ValueError(f"{peer} {PEERS[peer].version} has no attack {method!r}; {advice}")
    return kind(known[method], peer, method)


def _attacks(found: Mapping[str, Any], peer: str) -> dict[str, Any]:
    """The attacks among the names of a module: classes, or in adv-lib functions."""
    wanted: Callable[[Any], bool] = inspect.isfunction if peer == "adv-lib" else inspect.isclass
    return {name: thing for name, thing in found.items() if wanted(thing) and not name.startswith("_")}


def recognised(attack: Any, options: dict[str, Any]) -> tuple[Caller, dict[str, Any]]:
    """Whatever a user hands in, as something that can be called, and what it is told.

    A functools.partial is taken apart: what it holds are options.
    """
    if isinstance(attack, functools.partial) and not attack.args:
        return recognised(attack.func, {**attack.keywords, **options})
    if isinstance(attack, str):
        if not is_foreign(attack):
            raise ValueError(f"{attack!r} is no attack of another library; write library:name, {hint(attack, CALLERS)}")
        caller = named(*attack.split(":", 1))
    else:
        caller = _called(attack)
    caller.checked(options)
    return caller, dict(options)


def _called(attack: Any) -> Caller:
    """An attack object, a class or a function, by the library it comes from."""
    modules = {name: PEERS[name].module for name in CALLERS}
    kind = attack if isinstance(attack, type) or inspect.isfunction(attack) else type(attack)
    homes = [base.__module__ for base in getattr(kind, "__mro__", (kind,))]
    for peer, module in modules.items():
        if any(home.partition(".")[0] == module for home in homes):
            PEERS[peer].check()
            return CALLERS[peer][0](attack, peer, kind.__name__)
    if not callable(attack):
        raise TypeError(
            f"a {type(attack).__name__} is no attack; give a function (model, inputs, labels) -> inputs, an attack of "
            f"{', '.join(CALLERS)}, or its name, such as 'foolbox:L0FMNAttack'"
        )
    return Caller(attack, "", getattr(attack, "__name__", type(attack).__name__))
