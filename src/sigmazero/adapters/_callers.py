"""How attacks of other libraries are called. Each gets a model, inputs in [0, 1] and labels, and returns inputs."""

import difflib
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from sigmazero.adapters._peers import PEERS
from sigmazero.core.inputs import hint

REQUIRED = inspect.Parameter.empty
STEPS = ("steps", "num_steps", "max_iter", "max_iterations", "n_iter")  # names of the number of steps
# Attacks of ART without a switch for targets whose labels are always classes to reach.
REACHING = ("SaliencyMapMethod", "LowProFool", "DecisionTreeAttack", "TargetedUniversalPerturbation")


@dataclass(frozen=True)
class Caller:
    """An attack and how it is called; `thing` is a class, a function or an attack object.

    peer  its library, "" for a function of your own
    """

    extra: ClassVar[tuple[str, ...]] = ()  # further options, which its call takes
    refuses_itself: ClassVar[bool] = False  # whether the attack alone knows if it has a targeted form

    thing: Any
    peer: str = ""
    method: str = ""

    @property
    def title(self) -> str:
        """Return the name that reports use unless the user gives one."""
        return f"{self.peer}:{self.method}" if self.peer else self.method

    @property
    def release(self) -> str:
        """Return the version of its library."""
        return PEERS[self.peer].version if self.peer else ""

    @property
    def kind(self) -> Any:
        """Return its class, or the function itself."""
        return type(self.thing) if self.made else self.thing

    @property
    def made(self) -> bool:
        """Tell whether it is an attack object of a library, which has its options already."""
        plain = isinstance(self.thing, type | functools.partial) or inspect.isroutine(self.thing)
        return bool(self.peer) and not plain

    @functools.cached_property
    def accepts(self) -> dict[str, Any]:
        """Return the options that it takes, with their defaults; an attack object takes none any more."""
        if self.made:
            return {}
        found = inspect.signature(self.thing).parameters.values()
        return {p.name: p.default for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}

    @property
    def steps_name(self) -> str | None:
        """Return its name for the number of steps, where that is a number."""
        has = self.accepts
        return next((name for name in STEPS if type(has.get(name)) is int or has.get(name) is REQUIRED), None)

    def steps_of(self, options: dict[str, Any]) -> int:
        """Take the number of steps out of the options, or return its default; 1 where it has none."""
        name = self.steps_name
        if self.made:
            steps = getattr(self.thing, "steps", getattr(self.thing, "max_iter", 1))
            return steps if type(steps) is int and steps >= 1 else 1
        if name is None:
            return 1
        value = options.pop(name, 1 if self.accepts[name] is REQUIRED else self.accepts[name])
        if type(value) is not int or value < 1:
            raise ValueError(f"{self.title}: {name}={value!r} must be a whole number, 1 or more")
        return value

    def check_options(self, options: dict[str, Any]) -> None:
        """Refuse options that it does not take."""
        if self.made and options:
            raise TypeError(f"{self.title} was made already; give {', '.join(options)} when you make it")
        known = [*self.accepts, *self.extra]
        wrong = next((name for name in options if name not in known), None)
        if wrong and not any(p.kind is p.VAR_KEYWORD for p in inspect.signature(self.thing).parameters.values()):
            raise TypeError(f"{self.title} has no option {wrong!r}; {hint(wrong, known)}")

    def check_goal(self, name: str, targeted: bool) -> None:
        """Refuse a goal that it does not have."""
        if targeted and not self.refuses_itself and "targeted" not in self.accepts:
            raise ValueError(f"{name} has no targeted form: the function takes no argument 'targeted'")

    def call(self, model: nn.Module, x: Tensor, y: Tensor, targeted: bool, options: dict[str, Any]) -> Any:
        """Run it; `y` are the labels, or the classes to reach."""
        goal = {"targeted": targeted} if "targeted" in self.accepts else {}
        return self.thing(model, x, y, **goal, **options)

    def points(self, model: nn.Module, x: Tensor, y: Tensor, targeted: bool, options: dict[str, Any]) -> Tensor:
        """Run it, and return its inputs as a tensor."""
        found = self.call(model, x, y, targeted, options)
        found = getattr(found, "raw", found)
        if isinstance(found, np.ndarray):
            return torch.from_numpy(found)
        if not isinstance(found, Tensor):
            raise TypeError(f"{self.title} returned a {type(found).__name__}, not inputs; wrap it in a function")
        return found

    def settings(self) -> dict[str, Any]:
        """Return the settings of an attack object, as far as its attributes show them, for a store to know it by."""
        names = getattr(self.kind, "attack_params", None) or sorted(vars(self.thing))
        found = {name.strip("_"): getattr(self.thing, name, None) for name in names}
        skipped = ("model", "device", "attacks", "estimator", "classifier", "summary_writer")
        return {name: value for name, value in found.items() if name not in skipped}


class FoolboxCaller(Caller):
    """foolbox: an attack object, a model with bounds, a criterion, epsilons."""

    extra, refuses_itself = ("epsilons",), True

    def call(self, model: nn.Module, x: Tensor, y: Tensor, targeted: bool, options: dict[str, Any]) -> Any:
        """Return the clipped points of the last epsilon; without epsilons those of smallest size."""
        foolbox = PEERS["foolbox"].load()
        epsilons = options.pop("epsilons", None)
        attack = self.thing if self.made else self.thing(**options)
        criterion = foolbox.criteria.TargetedMisclassification(y) if targeted else foolbox.criteria.Misclassification(y)
        wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device=x.device)
        _, clipped, _ = attack(wrapped, x, criterion, epsilons=epsilons)
        return clipped[-1] if isinstance(clipped, list) else clipped


class TorchattacksCaller(Caller):
    """torchattacks: an object that knows its model, and modes for targets."""

    refuses_itself = True

    def call(self, model: nn.Module, x: Tensor, y: Tensor, targeted: bool, options: dict[str, Any]) -> Any:
        """Attack in [0, 1], without the normalisation that an attack object may have."""
        if self.made:
            attack = object.__new__(type(self.thing))
            attack.__dict__.update(self.thing.__dict__)
            attack.set_model(model)
            attack.__dict__ |= {"device": x.device, "normalization_used": None, "_normalization_applied": None}
        else:
            attack = self.thing(model, **options)
        if targeted:
            attack.set_mode_targeted_by_label(quiet=True)
        return attack(x, y)


class ArtCaller(Caller):
    """ART: an attack on a classifier object; arrays in, arrays out."""

    def check_goal(self, name: str, targeted: bool) -> None:
        """Refuse targets where they would be taken for true classes: without a switch, in most attacks."""
        if targeted and "targeted" not in self.kind.attack_params and self.method not in REACHING:
            raise ValueError(f"{name} has no targeted form: it takes no argument 'targeted'")

    def call(self, model: nn.Module, x: Tensor, y: Tensor, targeted: bool, options: dict[str, Any]) -> Any:
        """Make a classifier, which must know the number of classes (one query), and attack it."""
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
        if self.made:
            options = {n: getattr(self.thing, n) for n in self.thing.attack_params if hasattr(self.thing, n)}
        for quiet in ("verbose", "summary_writer"):
            if quiet in inspect.signature(self.kind).parameters:
                options.setdefault(quiet, False)
        if "targeted" in self.kind.attack_params:
            options["targeted"] = targeted
        attack = self.kind(classifier, **options)
        # Without a switch, labels are classes to reach: it has a goal of its own if none is given.
        given = {"y": y.cpu().numpy()} if targeted or "targeted" in self.kind.attack_params else {}
        return attack.generate(x=x.cpu().numpy(), **given)


# The class that calls a library's attacks, and the module where they are.
CALLERS: dict[str, tuple[type[Caller], str]] = {
    "foolbox": (FoolboxCaller, "attacks"),
    "torchattacks": (TorchattacksCaller, ""),
    "art": (ArtCaller, "attacks.evasion"),
    "adv-lib": (Caller, "attacks"),
}


def is_foreign(name: str) -> bool:
    """Tell whether a name is that of an attack in another library.

    >>> is_foreign("foolbox:L0FMNAttack"), is_foreign("sigma-zero"), is_foreign("net.py:build")
    (True, False, False)
    """
    return name.partition(":")[0] in CALLERS and ":" in name


@functools.lru_cache(maxsize=256)
def find(peer: str, method: str) -> Caller:
    """Return the attack of a library with this name."""
    if peer not in CALLERS:
        raise ValueError(f"there is no bridge to {peer!r}; {hint(peer, CALLERS)}")
    kind, part = CALLERS[peer]
    module = PEERS[peer].load(part)
    wanted: Callable[[Any], bool] = inspect.isfunction if peer == "adv-lib" else inspect.isclass
    known = {name: thing for name, thing in vars(module).items() if wanted(thing) and not name.startswith("_")}
    if method not in known:
        near = difflib.get_close_matches(method, known, n=1)
        advice = f"did you mean {near[0]!r}?" if near else f"see dir({module.__name__})"
        raise ValueError(f"{peer} {PEERS[peer].version} has no attack {method!r}; {advice}")
    return kind(known[method], peer, method)


def recognise(attack: Any, options: dict[str, Any]) -> tuple[Caller, dict[str, Any]]:
    """Return the caller of an attack that a user gave, and its options, those in a functools.partial included."""
    if isinstance(attack, functools.partial) and not attack.args:
        return recognise(attack.func, {**attack.keywords, **options})
    if isinstance(attack, str):
        if not is_foreign(attack):
            raise ValueError(f"{attack!r} is no attack of another library; write library:name, {hint(attack, CALLERS)}")
        caller = find(*attack.split(":", 1))
    else:
        caller = _by_type(attack)
    caller.check_options(options)
    return caller, dict(options)


def _by_type(attack: Any) -> Caller:
    """Return the caller of an attack object, a class or a function, by the library that it comes from."""
    kind = attack if isinstance(attack, type) or inspect.isfunction(attack) else type(attack)
    homes = {base.__module__.partition(".")[0] for base in getattr(kind, "__mro__", (kind,))}
    for peer, (caller, _) in CALLERS.items():
        if PEERS[peer].module in homes:
            return caller(attack, peer, kind.__name__)
    if not callable(attack):
        raise TypeError(f"a {type(attack).__name__} is no attack; give a function, or one of {', '.join(CALLERS)}")
    return Caller(attack, "", getattr(attack, "__name__", type(attack).__name__))


def as_setting(value: Any) -> Any:
    """Return a setting as a store can hold it: a number, a text, or a text that describes it.

    >>> as_setting({"norm": np.float64(0), "names": ["a"]})
    (('names', ('a',)), ('norm', 0.0))
    """
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, list | tuple):
        return tuple(as_setting(each) for each in value)
    if isinstance(value, dict):
        return tuple(sorted((str(key), as_setting(each)) for key, each in value.items()))
    if isinstance(value, np.generic | np.ndarray | Tensor):
        return as_setting(value.tolist())
    return f"{type(value).__module__}.{type(value).__qualname__} {vars(value) if hasattr(value, '__dict__') else ''}"
