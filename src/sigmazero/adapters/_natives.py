"""Our attacks as those of other libraries: names, options and models, the same for every bridge."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sigmazero.attacks.registry import ATTACKS, get
from sigmazero.core.attack import Attack, no_parameter
from sigmazero.core.hardware import Hardware
from sigmazero.core.ops import per_row
from sigmazero.core.result import Result

RUN = tuple(name for name in inspect.signature(Attack.run).parameters if name not in ("self", "model", "x", "y"))


class Configured(NamedTuple):
    """An attack of ours with the options of its `run`."""

    attack: Attack
    how: dict[str, Any]

    def run(self, model: Any, x: Tensor, y: Tensor, **more: Any) -> Result:
        """Attack; `more` is for this call alone. A model inside a wrapper is asked itself, as it cannot be copied."""
        uncopied = {"hardware": Hardware(prepare="none")} if isinstance(model, Inside) else {}
        return self.attack.run(model, x, y, **{**uncopied, **self.how, **more})

    def inputs(self, model: Any, x: Tensor, y: Tensor, **more: Any) -> Tensor:
        """Attack, and return adversarial inputs within the budget; the clean one where there is none.

        Other libraries judge what they get by the model's answer alone, and do not count the changes.
        """
        result = self.run(model, x, y, **more)
        return torch.where(per_row(result.success, x), result.x_adv, x.detach())


def configure(attack: str | Attack, options: Mapping[str, Any]) -> Configured:
    """Return an attack, by name or made already, with options for itself and for its `run`.

    >>> configure("sigma-zero", {"steps": 7, "unit": "pixel"}).how
    {'unit': 'pixel'}
    """
    how = {name: value for name, value in options.items() if name in RUN}
    own = {name: value for name, value in options.items() if name not in RUN}
    if isinstance(attack, str):
        return Configured(get(attack, **own), how)
    for unknown in sorted(own.keys() - attack.parameters().keys()):
        raise no_parameter(type(attack), attack.name, unknown, RUN)
    return Configured(replace(attack, **own), how)


def class_name(name: str) -> str:
    """Return the name of an attack's class, such as PgdL0Paper for pgd-l0-paper."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("-"))


def function_name(name: str) -> str:
    """Return the name of an attack's function, such as sigma_zero_star for sigma-zero-star."""
    return name.replace("-", "_")


class Natives:
    """The names of a bridge's module: one for every attack of the registry, those registered later included.

    A module uses it as its `__getattr__`, and its `names` as `__dir__`.
    """

    def __init__(
        self,
        module: str,
        make: Callable[[Attack], Any],
        others: Sequence[str],
        word: Callable[[str], str] = class_name,
    ) -> None:
        self.module, self.make, self.others, self.word = module, make, others, word
        self._made: dict[str, Any] = {}

    def __call__(self, name: str) -> Any:
        """Return the attack with this name: its own or, where that is a class, the one at the top level."""
        if name not in self._made:
            for attack in list(ATTACKS.values()):
                own = self.word is class_name and getattr(type(attack), "name", None) == attack.name
                if name == self.word(attack.name) or (own and name == type(attack).__name__):
                    self._made[name] = self.make(attack)
                    break
            else:
                known = ", ".join(map(self.word, ATTACKS))
                raise AttributeError(f"module {self.module!r} has no attribute {name!r}; its attacks are: {known}")
        return self._made[name]

    def names(self) -> list[str]:
        """List all names of the module."""
        return [*map(self.word, ATTACKS), *self.others]


def native(bases: tuple[type, ...], attack: Attack, module: str) -> type:
    """Return the class of one attack: the bridge's class for all of them, on a base class of the library."""
    doc = f"{attack.name} as {inspect.getdoc(bases[0])}\n\nOptions, besides those of `Attack.run`: {_options(attack)}."
    return type(class_name(attack.name), bases, {"sigmazero": attack, "__doc__": doc, "__module__": module})


def simple(function: Callable[..., Any], attack: Attack, module: str) -> Callable[..., Any]:
    """Return the function of one attack, made from a bridge's `run`, with a name and a docstring."""
    made = partial(function, attack.name)
    made.__name__ = made.__qualname__ = function_name(attack.name)  # type: ignore[attr-defined]
    made.__doc__ = f"{attack.name}: {inspect.getdoc(function)}\n\nIts options: {_options(attack)}."
    made.__module__ = module
    return made


def _options(attack: Attack) -> str:
    return ", ".join(f"{name}={getattr(value, 'name', value)!r}" for name, value in attack.parameters().items())


class Inside(nn.Module):
    """A model that another library has wrapped: its answers are the wrapper's, its modes those of the module inside."""

    def __init__(self, module: nn.Module, answer: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.module, self._answer = module, answer

    def forward(self, x: Tensor) -> Tensor:
        """Ask the wrapper."""
        return self._answer(x)
