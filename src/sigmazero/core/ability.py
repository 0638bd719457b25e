"""What a model can be asked for: gradients, scores alone, or labels alone.

A model says it in an attribute `ability`; one without it has gradients. Each ability has what those after it have: a
model with gradients also gives scores. An attack says in `needs` the least that it can work with.

>>> from types import SimpleNamespace
>>> ability_of(SimpleNamespace(ability="scores")), suffices("scores", "labels"), suffices("scores", "gradients")
('scores', True, False)
"""

from typing import Literal, get_args

Ability = Literal["gradients", "scores", "labels"]
ABILITIES: tuple[Ability, ...] = get_args(Ability)
# Of every attack of the registry, which keeps them: a refusal says names.
NEEDS: dict[str, Ability] = {}
TAKES: dict[str, frozenset[str]] = {}


def ability_of(model: object) -> Ability:
    """What a model can be asked for, by what it says of itself."""
    said = getattr(model, "ability", "gradients")
    for ability in ABILITIES:
        if said == ability:
            return ability
    if isinstance(said, str):
        raise ValueError(f"the model's ability={said!r} is not one of {', '.join(map(repr, ABILITIES))}")
    return "gradients"  # an attribute of the user's own that happens to have this name


def suffices(ability: Ability, needs: Ability) -> bool:
    """Whether a model of this ability can be attacked by what needs so much."""
    return ABILITIES.index(ability) <= ABILITIES.index(needs)


def working(ability: Ability) -> list[str]:
    """The names of the attacks that work on a model of this ability."""
    return [name for name, needs in NEEDS.items() if suffices(ability, needs)]


def check_ability(name: str, needs: Ability, model: object) -> None:
    """Refuse an attack on a model that has less than it needs, with the names of those that work."""
    has = ability_of(model)
    if not suffices(has, needs):
        only = "labels only" if has == "labels" else "scores, but no gradients"
        raise ValueError(f"{name} needs {needs}, and this model has {only}; use {' or '.join(working(has))}")
