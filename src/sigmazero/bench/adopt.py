"""Cells that an older version stored under other keys: taken over where those keys covered all that decides the answer.

Keys of format 1 knew the code of attacks and models by name alone. That is enough for attacks of the registry, whose
code has a version, and for models of the zoo and exported programs. Other cells stay as they are, under their old keys.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from sigmazero.bench.cells import Cell
from sigmazero.bench.identity import digest, plain_parameters
from sigmazero.core.attack import Attack
from sigmazero.store.store import Store


def adopt(cells: Sequence[Cell], store: Store) -> int:
    """Give cells of an older version the keys they have now, so that they are not run again; returns how many."""
    held = set(store.cell_keys())
    old = [info for info in (store.cell(key) for key in held) if not info.identity]
    found = {
        info.key: cell.info
        for cell in cells
        for info in old
        if cell.info.key not in held and former_key(cell, info.parameters) == info.key
    }
    for key, info in found.items():
        store.adopt(key, info)
    return len(found)


def former_key(cell: Cell, parameters: dict[str, Any]) -> str | None:
    """The key of format 1 of the same question, with the parameters as they were called; None if there is none."""
    asked, attack = cell.info.identity, cell.question.attack
    code = asked["model"]["code"]
    covered = "architecture" in code or code.keys() == {"file", "normalize"}
    usual = asked["bounds"] == [0.0, 1.0] and asked["mask"] is None and "code" not in asked["attack"]
    if not (covered and usual and _same(attack, parameters)):
        return None
    before = {name: value for name, value in asked.items() if name not in ("bounds", "mask")}
    return digest({**before, "format": 1, "attack": {**asked["attack"], "parameters": parameters}})


def _same(attack: Attack, before: dict[str, Any]) -> bool:
    """Whether an attack has the parameters of a stored one, by their new names, and its defaults for new ones."""
    names = {attack.renamed.get(name, name): value for name, value in before.items()}
    defaults = {field.name: field.default for field in fields(attack)}
    now, plain = attack.parameters(), plain_parameters(attack)
    return names.keys() <= now.keys() and all(
        _equal(value, plain[name], names[name]) if name in names else value == defaults[name]
        for name, value in now.items()
    )


def _equal(value: Any, plain: dict[str, Any], before: Any) -> bool:
    if not isinstance(value, Attack):
        return bool(plain == before)
    known = {**before, "parameters": plain["parameters"]} == plain  # class and version, and no code of its own
    return known and _same(value, before["parameters"])
