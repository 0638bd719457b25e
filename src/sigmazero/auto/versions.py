"""Which attacks a cascade has, in which order: frozen, so that two evaluations by one version can be compared.

Whatever changes a number here gets a new `number`, which every report and every state file carries.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sigmazero.attacks import get
from sigmazero.core.ability import Ability
from sigmazero.core.attack import Attack


@dataclass(frozen=True)
class Version:
    """The members for a fixed budget, and those that look for the fewest changes."""

    name: str
    number: int
    budget: tuple[Attack, ...]
    minimum: tuple[Attack, ...]

    def members(self, eps: int | None) -> tuple[Attack, ...]:
        """The members that answer this question."""
        return self.minimum if eps is None else self.budget

    def __str__(self) -> str:
        """Name and number, as reports show them."""
        return f"{self.name} {self.number}"


VERSIONS: dict[str, Version] = {
    version.name: version
    for version in (
        Version(
            "standard",
            4,
            budget=(
                get("sigma-swap", queries=2000),
                get("sigma-zero-star", steps=1000),
                get("spgd-unprojected", steps=10_000),
                get("sparse-rs", steps=5000),
            ),
            minimum=(
                get("sigma-swap", queries=2000),
                get("sigma-zero-star", steps=1000),
                get("spgd-unprojected-min", steps=5000),
                get("sparse-rs-min", steps=5000),
            ),
        ),
        Version(
            "quick",
            4,
            budget=(get("sigma-swap", queries=500), get("sparse-rs", steps=500)),
            minimum=(get("sigma-swap", queries=500), get("sparse-rs-min", steps=500)),
        ),
    )
}


def _black_box(name: str, number: int, steps: int) -> dict[Ability, Version]:
    scores = get("query-swap", steps=steps)
    return {
        "scores": Version(
            f"{name}-scores",
            number,
            budget=(scores, get("sparse-rs", steps=steps)),
            minimum=(scores, get("sparse-rs-min", steps=steps)),
        ),
        "labels": Version(f"{name}-labels", number, *[(get("label-swap", steps=steps),)] * 2),
    }


# What a version is on a model without gradients: no number of it can be compared with one of the version itself.
BLACK_BOX = {"standard": _black_box("standard", 1, 5000), "quick": _black_box("quick", 1, 500)}


def choose(
    version: str, attacks_to_run: Sequence[str | Attack], eps: int | None, ability: Ability = "gradients"
) -> Version:
    """A version by name, or one of the caller's own attacks; `eps` is what they must be able to answer.

    On a model of less ability than gradients a version has other members, and another name that says so.

    >>> str(choose("custom", ["fmn", "sparse-rs"], eps=10)), [m.name for m in choose("quick", [], 10).members(10)][-1]
    ('custom 0', 'sparse-rs')
    >>> str(choose("quick", [], 10, "labels"))
    'quick-labels 1'
    """
    if version != "custom":
        if version not in VERSIONS:
            raise ValueError(f"version={version!r} is not one of {', '.join(map(repr, (*VERSIONS, 'custom')))}")
        if attacks_to_run:
            raise ValueError(f'attacks_to_run needs version="custom"; version={version!r} is frozen')
        return VERSIONS[version] if ability == "gradients" else BLACK_BOX[version][ability]
    if isinstance(attacks_to_run, str) or not attacks_to_run:
        raise ValueError(f'version="custom" needs attacks_to_run=["sigma-zero", ...], got {attacks_to_run!r}')
    members = tuple(get(each) if isinstance(each, str) else each for each in attacks_to_run)
    names = [member.name for member in members]
    if len(set(names)) < len(names):
        raise ValueError(f"attacks_to_run names an attack twice: {', '.join(names)}; give each a name of its own")
    for member in members:
        if eps is None and member.kind == "budget":
            raise ValueError(f"{member.name} needs a budget: pass eps=k, or take an attack such as sparse-rs-min")
        if "untargeted" not in member.goals:
            raise ValueError(f"{member.name} has no untargeted form; leave it out of attacks_to_run")
    return Version("custom", 0, members, members)
