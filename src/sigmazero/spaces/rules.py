"""What ties features to each other: linear rules, and features that follow from others.

>>> from sigmazero.spaces.space import Space
>>> space = Space(names=["length", "host", "path"], kind="integer", upper=99, rules=[Rule({"host": 1}, ">=", 1)],
...               derived={"length": Formula({"host": 1, "path": 1}, 3)})
>>> laws = space.columns((3,)).laws
>>> [laws.labels[k] for k in laws.at], laws.describe(0)
(["'length'"], "1·'host' >= 1")
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from sigmazero.spaces.space import Space

Floats = NDArray[np.float64]
Derive = Callable[[Tensor], Tensor]
SENSES = ("<=", ">=", "=")


@dataclass(frozen=True)
class Rule:
    """Keep a sum of terms, {feature: factor}, at most ("<="), at least (">=") or at ("=") a bound; experimental.

    `when` is another rule: this one must hold only where that one does.
    """

    terms: Mapping[Any, float]
    sense: str
    bound: float
    when: Rule | None = None


@dataclass(frozen=True)
class Formula:
    """Compute a feature from others: the terms, {feature: factor}, summed up, and a constant; experimental."""

    terms: Mapping[Any, float]
    constant: float = 0.0


@dataclass(frozen=True)
class Laws:
    """Rules and derived features of a space over its flat features; an empty one has neither.

    rules, least, most  the sums and their ends: (rules, features) and (rules,)
    when, when_least, when_most  the same of the conditions; a rule without one has an empty sum without ends
    at       derived features, each after those that it follows from
    sums     what they follow from, (derived, features), nothing where there is a function
    constants, functions  the same for each of them; None where there is no function
    """

    rules: Floats
    least: Floats
    most: Floats
    when: Floats
    when_least: Floats
    when_most: Floats
    at: tuple[int, ...]
    sums: Floats
    constants: Floats
    functions: tuple[Derive | None, ...]
    labels: list[str]

    def __bool__(self) -> bool:
        """Return whether anything ties features to each other."""
        return bool(len(self.rules) or self.at)

    def describe(self, rule: int) -> str:
        """Return a rule as errors show it."""
        words = self._words(self.rules[rule], self.least[rule], self.most[rule])
        if not self.when[rule].any():
            return words
        return f"if {self._words(self.when[rule], self.when_least[rule], self.when_most[rule])} then {words}"

    def _words(self, row: Floats, least: float, most: float) -> str:
        terms = " + ".join(f"{row[k]:g}·{self.labels[k]}" for k in np.flatnonzero(row))
        return f"{terms} {f'= {most:g}' if least == most else f'<= {most:g}' if most < math.inf else f'>= {least:g}'}"


def laws(space: Space, n: int, labels: list[str]) -> Laws:
    """Return the rules and derived features of a space; name what contradicts itself."""
    always = (np.zeros(n), -math.inf, math.inf)
    declared = [_rule(space, rule, n, f"rule {k}") for k, rule in enumerate(space.rules)]
    conditions = [always if rule.when is None else _rule(space, rule.when, n, f"the condition of rule {k}")
                  for k, rule in enumerate(space.rules)]  # fmt: skip
    for k, rule in enumerate(space.rules):
        if rule.when is not None and rule.when.when is not None:
            raise ValueError(f"space: the condition of rule {k} has a condition itself; write one rule for each")
    rules, least, most = _stacked(declared, n)
    when, when_least, when_most = _stacked(conditions, n)
    given = {space.place(feature, n): _formula(how, space.label(space.place(feature, n)))
             for feature, how in space.derived.items()}  # fmt: skip
    sums = {k: _sum(space, how.terms, n, f"derived feature {labels[k]}")
            for k, how in given.items() if isinstance(how, Formula)}  # fmt: skip
    at = _ordered(given, sums, labels)
    how = [given[k] for k in at]
    return Laws(
        rules=rules,
        least=least,
        most=most,
        when=when,
        when_least=when_least,
        when_most=when_most,
        at=tuple(at),
        sums=np.array([sums.get(k, np.zeros(n)) for k in at]).reshape(len(at), n),
        constants=np.array([one.constant if isinstance(one, Formula) else 0.0 for one in how]),
        functions=tuple(None if isinstance(one, Formula) else one for one in how),
        labels=labels,
    )


def _rule(space: Space, rule: Any, n: int, what: str) -> tuple[Floats, float, float]:
    """Return the sum of a rule and its ends."""
    if not isinstance(rule, Rule):
        raise TypeError(f"space: {what} is a {type(rule).__name__}; write Rule({{feature: factor}}, '<=', bound)")
    if rule.sense not in SENSES:
        raise ValueError(f"space: {what} has sense {rule.sense!r}, which is not one of {', '.join(SENSES)}")
    bound = _number(rule.bound, f"{what}: the bound")
    ends = (bound if rule.sense != "<=" else -math.inf, bound if rule.sense != ">=" else math.inf)
    return _sum(space, rule.terms, n, what), *ends


def _stacked(found: Sequence[tuple[Floats, float, float]], n: int) -> tuple[Floats, Floats, Floats]:
    sums, least, most = zip(*found, strict=True) if found else ((), (), ())
    return np.array(sums).reshape(-1, n), np.array(least, dtype=float), np.array(most, dtype=float)


def _formula(how: Any, label: str) -> Formula | Derive:
    if isinstance(how, Mapping):
        how = Formula(how)
    if isinstance(how, Formula):
        _number(how.constant, f"derived feature {label}: the constant")
        return how
    if not callable(how):
        raise TypeError(f"space: derived feature {label} is a {type(how).__name__}; give a Formula or a function")
    function: Derive = how
    return function


def _sum(space: Space, terms: Any, n: int, what: str) -> Floats:
    """Return factors over all features."""
    if not isinstance(terms, Mapping) or not terms:
        raise ValueError(f"space: {what} has terms={terms!r}; write them as {{feature: factor}}")
    found = np.zeros(n)
    for feature, factor in terms.items():
        k = space.place(feature, n)
        found[k] += _number(factor, f"{what}: the factor of feature {space.label(k)}")
    return found


def _number(value: Any, what: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"space: {what} is {value!r}; give a finite number")
    return number


def _ordered(given: Mapping[int, Any], sums: Mapping[int, Floats], labels: Sequence[str]) -> list[int]:
    """Return the derived features, each after those that it follows from."""
    found: list[int] = []

    def visit(k: int, path: tuple[int, ...]) -> None:
        if k in path:
            circle = " → ".join(labels[one] for one in (*path[path.index(k) :], k))
            raise ValueError(f"space: derived feature {labels[k]} depends on itself ({circle}); break the circle")
        if k in found:
            return
        for other in np.flatnonzero(sums[k]) if k in sums else ():
            if int(other) in given:
                visit(int(other), (*path, k))
        found.append(k)

    for k in given:
        visit(k, ())
    return found
