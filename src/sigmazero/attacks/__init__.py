"""The registry: one name per attack or preset, each a ready instance to run or to vary."""

import difflib
from dataclasses import replace
from typing import Any

from sigmazero.attack import Attack
from sigmazero.attacks.sigma_zero import SigmaZero

ATTACKS: dict[str, Attack] = {
    attack.name: attack
    for attack in (
        SigmaZero(),
        SigmaZero(name="sigma-zero-star", step_size=0.1, smoothing=1.0, threshold=0.1, threshold_rate=0.0015),
    )
}


def get(name: str, **parameters: Any) -> Attack:
    """An attack by name, with some of its parameters changed.

    >>> get("sigma-zero", steps=100).steps
    100
    """
    if name not in ATTACKS:
        near = difflib.get_close_matches(name, ATTACKS, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(ATTACKS)}"
        raise KeyError(f"no attack is called {name!r}; {hint}")
    attack = ATTACKS[name]
    unknown = sorted(set(parameters) - set(attack.parameters()))
    if unknown:
        known = ", ".join(attack.parameters())
        raise TypeError(f"{name} has no parameter {', '.join(map(repr, unknown))}; it has: {known}")
    return replace(attack, **parameters)
