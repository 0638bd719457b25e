"""How attacks that are not ours are told what to attack: one way of calling for each library.

Every caller is handed a model, inputs in [0, 1] and labels, and returns inputs; the rest is its library's convention.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sigmazero.adapters._peers import PEERS
from sigmazero.core.inputs import hint

_NO_DEFAULT = inspect.Parameter.empty
STEPS = ("steps", "num_steps", "max_iter", "max_iterations", "n_iter")  # what libraries call the number of steps


@dataclass(frozen=True)
class Caller:
    """An attack and how it is called; `thing` is a class, a function or an attack object.

    peer     its library, "" for a function of the user's own
    """

    thing: Any
    peer: str = ""
    method: str = ""

    @property
    def title(self) -> str:
        """What it is called, if the user has no name for it."""
        return f"{self.peer}:{self.method}" if self.peer else self.method

    @property
    def release(self) -> str:
        """The version of its library."""
        return PEERS[self.peer].version if self.peer else ""

    @property
    def made(self) -> bool:
        """Whether it is an attack object of a library, with options of its own already."""
        return bool(self.peer) and _is_object(self.thing)

    @functools.cached_property
    def accepts(self) -> dict[str, Any]:
        """What it takes by name, with the defaults; an attack object of a library was made already, and takes nothing."""
        if self.made:
            return {}
        found = inspect.signature(self.thing).parameters.values()
        return {p.name: p.default for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}

    @property
    def _steps(self) -> str | None:
        """What it calls its number of steps, where that is a number and not a choice of its own."""
        given = {name: self.accepts[name] for name in STEPS if name in self.accepts}
        return next((name for name, default in given.items() if default is _NO_DEFAULT or type(default) is int), None)

    def steps_of(self, told: dict[str, Any]) -> int:
        """Its number of steps, taken out of what it is told, or its default; 1 where it has none that we know of."""
        if self.made:
            held = getattr(self.thing, "steps", getattr(self.thing, "max_iter", 1))
            return held if type(held) is int and held >= 1 else 1
        if self._steps is None:
            return 1
        default = self.accepts[self._steps]
        value = told.pop(self._steps, 1 if default is _NO_DEFAULT else default)
        if type(value) is not int or value < 1:
            raise ValueError(f"{self.title}: {self._steps}={value!r} must be a whole number, 1 or more")
        return value

    def told(self, options: dict[str, Any], steps: int) -> dict[str, Any]:
        """Its options, with the number of steps by its own word."""
        return options if self._steps is None else {**options, self._steps: steps}

    def checked(self, options: dict[str, Any]) -> None:
        """Refuse options that it does not take."""
        if self.made:
            if options:
                raise TypeError(f"{self.title} was made already; give {', '.join(options)} when you make it")
            return
        if any(p.kind is p.VAR_KEYWORD for p in inspect.signature(self.thing).parameters.values()):
            return
        for name in options:
            if name not in self.accepts and name not in self.extra:
                raise TypeError(f"{self.title} has no option {name!r}; {hint(name, [*self.accepts, *self.extra])}")

    @property
    def extra(self) -> tuple[str, ...]:
        """Options that its call takes, not its making."""
        return ()

    def check(self, name: str, targeted: bool) -> None:
        """Refuse a goal that it does not have."""
        if targeted and "targeted" not in self.accepts:
            raise ValueError(f"{name} has no targeted form: the function takes no argument 'targeted'")

    def call(self, model: nn.Module, x: Tensor, y: Tensor, targeted: bool, options: dict[str, Any]) -> Tensor:
        """What the attack returns for inputs in [0, 1] and labels, or classes to reach."""
        goal = {"targeted": targeted} if "targeted" in self.accepts else {}
        return as_tensor(self.thing(model, x, y, **goal, **options), self.title)


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
        """Whether there is a targeted form, only the attack itself knows."""

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


def as_tensor(found: Any, title: str) -> Tensor:
    """What an attack returned, as a tensor."""
    found = getattr(found, "raw", found)
    if isinstance(found, np.ndarray):
        return torch.from_numpy(found)
    if not isinstance(found, Tensor):
        raise TypeError(f"{title} returned a {type(found).__name__}, not inputs; wrap it in a function that does")
    return found


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
        raise ValueError(
            f"{PEERS[peer].package} {PEERS[peer].version} has no attack {method!r}; {_near(method, known)}"
        )
    return kind(known[method], peer, method)


def _near(method: str, known: Mapping[str, Any]) -> str:
    return hint(method, sorted(known))


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


def _is_object(thing: Any) -> bool:
    """Whether it is an attack that was made already, rather than a class or a function."""
    return not isinstance(thing, type) and not inspect.isroutine(thing) and not isinstance(thing, functools.partial)


def settings(attack: Any) -> dict[str, Any]:
    """What an attack object was made with, as far as its attributes tell: enough to know it again in a store."""
    names = getattr(type(attack), "attack_params", None) or sorted(vars(attack))
    held = {name.strip("_"): getattr(attack, name, None) for name in names}
    skipped = ("model", "device", "attacks", "estimator", "classifier", "summary_writer")
    return {name: value for name, value in held.items() if name not in skipped}


def plain(value: Any) -> Any:
    """A setting as a store can keep it: a number, a text, or what says best what it is."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return tuple(plain(each) for each in value)
    if isinstance(value, dict):
        return tuple(sorted((str(key), plain(each)) for key, each in value.items()))
    if isinstance(value, np.generic | np.ndarray | Tensor):
        return plain(value.tolist())
    return f"{type(value).__module__}.{type(value).__qualname__} {vars(value) if hasattr(value, '__dict__') else ''}"
