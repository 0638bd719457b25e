"""The attacks of a plan: those of the registry with their parameters, sweeps of them, and those of other libraries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sigmazero import attacks as registry
from sigmazero.adapters.foreign import is_foreign, planned
from sigmazero.bench import plan_words
from sigmazero.bench.toml import TomlTable, brief
from sigmazero.core.attack import Attack
from sigmazero.core.inputs import hint
from sigmazero.core.parameters import NamedModel, takes_model


def setting(levels: list[TomlTable], key: str, read: Any) -> Any:
    """A setting from the nearest table that has it."""
    return next((read(table) for table in levels if key in table), None)


def attacks_of(top: TomlTable, grid: TomlTable, name: str) -> Iterator[tuple[TomlTable, str, Attack]]:
    """The attack of a name, or one for each combination of its sweep."""
    table = top.below("attacks").below(name)
    if name not in top.below("attacks") and name not in registry.ATTACKS and not is_foreign(name):
        known = [*top.below("attacks").values, *registry.ATTACKS]
        raise grid.error(f"unknown attack {name!r}; {hint(name, known)}", "attacks")
    table.only(tuple(plan_words.ATTACK))
    base = table.text("attack") or name
    if base not in registry.ATTACKS and not is_foreign(base):
        raise table.error(f"attack {base!r} is not registered; {hint(base, registry.ATTACKS)}", "attack")
    fixed, sweep = table.below("parameters"), table.below("sweep")
    for key, values in sweep.values.items():
        if not isinstance(values, list) or not values:
            raise table.error(f"sweep of {key} must be a list of values, such as [0.1, 0.3]", "sweep", key)
    steps = setting([table, grid, top], "steps", lambda t: t.whole("steps", 1))
    for values in itertools.product(*sweep.values.values()):
        swept = dict(zip(sweep.values, values, strict=True))
        label = " ".join([name, *(f"{key}={value}" for key, value in swept.items())])
        yield table, label, _attack(table, base, label, {**fixed.values, **swept}, steps)


def _attack(table: TomlTable, base: str, label: str, given: dict[str, Any], steps: int | None) -> Attack:
    if is_foreign(base):
        return planned(base, label, given, steps, lambda said: table.error(said, "parameters"))
    attack = registry.get(base)
    known = attack.parameters()
    if "steps" in given:
        raise table.error("write steps beside parameters, not among them", "parameters")
    for key in given:
        if key not in known:
            allowed = [k for k in known if k != "steps"]
            said = registry.renamed(attack, key) or f"{base} has no parameter {key!r}; {hint(key, allowed)}"
            raise table.error(said, "parameters", key)
    chosen: dict[str, Any] = {} if steps is None else {"steps": steps}
    for key, value in given.items():
        where = "sweep" if key in table.below("sweep") else "parameters"
        if isinstance(value, str) and takes_model(type(attack), key):
            chosen[key] = NamedModel(value)
            continue
        chosen[key] = _like(table, where, key, value, known[key])
    try:
        return replace(registry.get(base, **chosen), name=label)
    except (TypeError, ValueError) as error:
        raise table.error(f"{base}: {error}", "parameters") from None


def _like(table: TomlTable, where: str, key: str, value: Any, default: Any) -> Any:
    """A parameter's value with the type of its default: a threshold of 1 and one of 1.0 are the same question."""
    if isinstance(default, Attack) and isinstance(value, str):
        if value not in registry.ATTACKS:
            raise table.error(f"{key} = {value!r} is no attack; {hint(value, registry.ATTACKS)}", where, key)
        return registry.get(value)
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if default is not None and not isinstance(default, Attack) and type(value) is not type(default):
        kind = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a text in quotes"}
        wanted = kind.get(type(default).__name__, f"like {default!r}")
        raise table.error(f"{key} = {brief(value)} must be {wanted}", where, key)
    return tuple(value) if isinstance(value, list) else value
