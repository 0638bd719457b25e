"""Hyper-parameters: the type of a field declares its values, and is checked here for every attack.

    steps: Count = 1000                                   momentum: Momentum = 0.9
    classes: Annotated[int, Range(least=2)] | None = 10   order: Literal["released", "paper"] = "released"
    pull: Annotated[Positive, "how fast it walks towards the boundary"] = 3.0

A number is always finite. A text says what the parameter means. Types that several attacks need have names below.
"""

import math
import sys
from collections.abc import Collection
from dataclasses import dataclass, fields
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from sigmazero.core.problem import integer


@dataclass(frozen=True)
class Range:
    """Numbers between two ends: `least` and `most` are included, `above` and `below` are not."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    def __contains__(self, number: float) -> bool:
        """Return whether a number lies between the ends."""
        return (
            (self.least is None or number >= self.least)
            and (self.above is None or number > self.above)
            and (self.most is None or number <= self.most)
            and (self.below is None or number < self.below)
        )

    def __str__(self) -> str:
        """Return the range in words.

        >>> str(Range(least=1)), str(Range(least=0, below=1))
        ('1 or more', 'at least 0 and less than 1')
        """
        ends = {"at least": self.least, "greater than": self.above, "at most": self.most, "less than": self.below}
        parts = [f"{words} {end:g}" for words, end in ends.items() if end is not None]
        return f"{self.least:g} or more" if self.least is not None and len(parts) == 1 else " and ".join(parts)


@dataclass(frozen=True)
class OneOf:
    """Words of a collection that may grow, such as the names of a registry."""

    words: Collection[object]

    def __contains__(self, word: object) -> bool:
        """Return whether it is one of the present words."""
        return word in self.words

    def __str__(self) -> str:
        """Return the present words."""
        return f"one of {', '.join(map(repr, self.words))}"


@dataclass(frozen=True)
class Kind:
    """Objects of a class; errors describe them by `words`."""

    kind: type
    words: str

    def __contains__(self, value: object) -> bool:
        """Return whether it is such an object."""
        return isinstance(value, self.kind)

    def __str__(self) -> str:
        """Return the words."""
        return self.words


@dataclass(frozen=True)
class NamedModel:
    """A network by its name, in a plan or a command, where it is loaded before the attack runs."""

    name: str


Count = Annotated[int, Range(least=1)]
Whole = Annotated[int, Range(least=0)]
Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(least=0)]
Share = Annotated[float, Range(above=0, most=1)]  # a part of something, all of it included
Momentum = Annotated[float, Range(least=0, below=1)]  # the weight of the past in a running mean

_WORDS: dict[Any, str] = {NoneType: "None", bool: "True or False", int: "a whole number", float: "a finite number"}


@lru_cache(maxsize=256)
def types(owner: type) -> dict[str, Any]:
    """Return the type of every parameter of an attack; `steps` is a count even where a class declares an int."""
    hints = get_type_hints(owner, include_extras=True)
    found = {field.name: hints[field.name] for field in fields(owner) if field.name != "name"}
    return found | ({"steps": Count} if found.get("steps") is int else {})


def checked(owner: type, name: str, value: Any) -> Any:
    """Return the value of a parameter as a Python value; refuse one that its type does not allow.

    >>> from sigmazero.attacks.fmn import FMN
    >>> checked(FMN, "steps", np.int64(3)), checked(FMN, "step_size", 1)
    (3, 1.0)
    >>> checked(FMN, "step_size", 0.0)
    Traceback (most recent call last):
    ValueError: step_size=0.0 must be a finite number, greater than 0
    """
    allowed = alternatives(types(owner)[name])
    for kind, limits in allowed:
        if _is(kind, value):
            own = kind(value) if kind in (int, float) else value
            if all(own in limit for limit in limits):
                return own
    words = ", or ".join(_say(kind, limits) for kind, limits in allowed)
    shown = getattr(value, "name", value)  # of an attack inside another
    verb = "is not" if words.startswith("one of") else "must be"
    raise ValueError(f"{name}={shown!r} {verb} {words}")


def meaning(owner: type, name: str) -> str:
    """Return the text of a parameter: of its field, or of the same field of the nearest class above.

    >>> from sigmazero.attacks.fmn import FMN
    >>> meaning(FMN, "steps")
    'most steps of a sample'
    """
    for each in owner.__mro__:
        hint = get_type_hints(each, include_extras=True).get(name)
        if texts := [extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, str)]:
            return texts[-1]
    return ""


def takes_model(owner: type, name: str) -> bool:
    """Return whether a parameter of an attack is a network, which plans and commands name."""
    return any(kind is NamedModel for kind, _ in alternatives(types(owner)[name]))


def alternatives(hint: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    """Return the kinds of values that a type allows, each with its limits: two for `int | None`."""
    if get_origin(hint) in (Union, UnionType):
        return [one for part in get_args(hint) for one in alternatives(part)]
    if get_origin(hint) is Annotated:
        base, *extras = get_args(hint)
        limits = [extra for extra in extras if not isinstance(extra, str)]
        return [(kind, (*inner, *limits)) for kind, inner in alternatives(base)]
    if get_origin(hint) is Literal:
        words = get_args(hint)
        return [(tuple({type(word) for word in words}), (OneOf(words),))]
    return [(get_origin(hint) or hint, ())]


def _is(kind: Any, value: Any) -> bool:
    """Return whether a value is of a kind: 3 is a float too, 3.0 is no int, True is neither, NaN is no number."""
    if kind is Any:
        return True
    if kind is int:
        return integer(value)
    if kind is float:
        if isinstance(value, float | np.floating):
            return math.isfinite(value)
        return integer(value) and abs(int(value)) <= sys.float_info.max
    return isinstance(value, kind)


def _say(kind: Any, limits: tuple[Any, ...]) -> str:
    """Return a kind of value in words, with its limits."""
    words = [str(limit) for limit in limits]
    if kind in (int, float):
        return ", ".join([_WORDS[kind], *words])
    return " and ".join(words) or _WORDS.get(kind, f"of the kind {kind.__name__}")
