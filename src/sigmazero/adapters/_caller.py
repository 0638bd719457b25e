"""An attack that is not ours: what it takes, and how it is called."""

import functools
import inspect
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sigmazero.adapters._peers import PEERS
from sigmazero.core.inputs import hint

_NO_DEFAULT = inspect.Parameter.empty
GRADIENTS = ("_and_grad", "autograd.grad(", ".backward(", "import grad", " grad(")  # what asks for them
BASES = ("base", "attack")  # modules of what all attacks of a library share
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

    @functools.cached_property
    def asks_gradients(self) -> bool:
        """Whether the code of a library's attack asks for gradients; of a function of the user's own nobody knows."""
        kind = type(self.thing) if self.made else self.thing
        return bool(self.peer) and asks_gradients(kind, PEERS[self.peer].module)

    @property
    def made(self) -> bool:
        """Whether it is an attack object of a library, with options of its own already."""
        return bool(self.peer) and is_object(self.thing)

    @functools.cached_property
    def accepts(self) -> dict[str, Any]:
        """What it takes by name, with the defaults; an attack object of a library takes nothing any more."""
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


def as_tensor(found: Any, title: str) -> Tensor:
    """What an attack returned, as a tensor."""
    found = getattr(found, "raw", found)
    if isinstance(found, np.ndarray):
        return torch.from_numpy(found)
    if not isinstance(found, Tensor):
        raise TypeError(f"{title} returned a {type(found).__name__}, not inputs; wrap it in a function that does")
    return found


def is_object(thing: Any) -> bool:
    """Whether it is an attack that was made already, rather than a class or a function."""
    return not isinstance(thing, type) and not inspect.isroutine(thing) and not isinstance(thing, functools.partial)


def asks_gradients(kind: Any, root: str) -> bool:
    """Whether a class, one that it is made from or a function of a library has code that asks for gradients.

    ART says it of its attacks. Elsewhere the text tells: of the modules that they are in, whose helpers they call.
    """
    told = getattr(kind, "_estimator_requirements", None)
    if told:
        return any("Gradients" in getattr(one, "__name__", "") for one in told)
    for base in getattr(kind, "__mro__", (kind,)):
        home = sys.modules.get(base.__module__)
        named = base.__module__.split(".")
        if home is None or named[0] != root or named[-1] in BASES:
            continue
        try:
            text = inspect.getsource(home)
        except (OSError, TypeError):  # no source at hand: it is tried
            continue
        if any(word in text for word in GRADIENTS):
            return True
    return False


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
