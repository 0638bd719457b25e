"""Which attacks a cascade has, in which order: frozen, so that two evaluations by one version can be compared.

Whatever changes a number here gets a new `number`, which every report and every state file carries.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sigmazero.adapters.foreign import attack_of
from sigmazero.attacks import get
from sigmazero.attacks.corner import Corner
from sigmazero.core.attack import Attack
from sigmazero.core.model import Ability
from sigmazero.core.problem import Problem

SMALL = 4  # so few changes are better asked about one by one than searched for


@dataclass(frozen=True)
class Version:
    """The members for a fixed budget, and those that look for the fewest changes.

    small  the members for a budget of at most 4 changes; None if they are those of any budget
    draws  how many answers of a random model are averaged for one; 1 for a model that is not random
    first  how many members set the price: those after them together cost at most 0.3 of what these cost
    """

    name: str
    number: int
    budget: tuple[Attack, ...]
    minimum: tuple[Attack, ...]
    small: tuple[Attack, ...] | None = None
    draws: int = 1
    first: int = 0

    def members(self, eps: int | None) -> tuple[Attack, ...]:
        """The members that answer this question."""
        if eps is None:
            return self.minimum
        return self.small if self.small is not None and eps <= SMALL else self.budget

    def fitting(self, eps: int | None, problem: Problem) -> tuple[Attack, ...]:
        """The members for these inputs: where those after the first cost too much, the last gets fewer queries."""
        members = self.members(eps)
        if not self.first:
            return members
        new = [member for member in members[self.first : -1] if not too_large(member, problem)]
        left = int(MORE * most_queries(members[: self.first], problem)) - most_queries(new, problem)
        excess = most_queries(members[-1:], problem) - left
        if excess <= 0:
            return members
        return (*members[:-1], replace(members[-1], steps=max(1, members[-1].steps - excess)))

    def __str__(self) -> str:
        """Name and number, as reports show them."""
        return f"{self.name} {self.number}"


# The members that the standard cascade begins with, whatever the budget.
FIRST = (
    get("sigma-swap", queries=2000),
    get("sigma-zero-star", steps=1000),
    get("spgd-unprojected", steps=10_000),
    get("sparse-rs", steps=5000),
)
FIRST_MINIMUM = (
    get("sigma-swap", queries=2000),
    get("sigma-zero-star", steps=1000),
    get("spgd-unprojected-min", steps=5000),
    get("sparse-rs-min", steps=5000),
)
MORE = 0.3  # of what they cost a sample that stands may be added by the members after them: 8,700 queries
CORNERS = get("corner-at", steps=266)  # all corners of 1,024 pixels of three channels, and what is guided after them

VERSIONS: dict[str, Version] = {
    version.name: version
    for version in (
        Version(
            "standard",
            1,
            budget=(*FIRST, get("query-swap", steps=4000), get("sparse-rs-inner", steps=4000)),
            minimum=(*FIRST_MINIMUM, get("corner", steps=100), get("query-swap", steps=2000)),
            small=(*FIRST, CORNERS, get("sparse-rs-inner", steps=2000)),
            first=len(FIRST),
        ),
        Version(
            "quick",
            1,
            budget=(get("sigma-swap", queries=500), get("sparse-rs", steps=500)),
            minimum=(get("sigma-swap", queries=500), get("sparse-rs-min", steps=500)),
        ),
        Version(
            "rand",
            1,
            budget=(get("sigma-swap", queries=500), get("sigma-zero-star", steps=200), get("sparse-rs", steps=1000)),
            minimum=(
                get("sigma-swap", queries=500),
                get("sigma-zero-star", steps=200),
                get("sparse-rs-min", steps=1000),
            ),
            draws=16,
        ),
    )
}


def _labels(steps: int) -> tuple[tuple[Attack, ...], tuple[Attack, ...]]:
    return ((get("label-swap", steps=steps),),) * 2


_SCORES = (get("query-swap", steps=5000), get("sparse-rs", steps=5000))
# What a version is on a model without gradients: no number of it can be compared with one of the version itself.
BLACK_BOX: dict[str, dict[Ability, Version]] = {
    "standard": {
        "scores": Version(
            "standard-scores",
            1,
            budget=(*_SCORES, get("sparse-rs-inner", steps=2000)),
            minimum=(_SCORES[0], get("sparse-rs-min", steps=5000)),
            small=(*_SCORES, CORNERS, get("sparse-rs-inner", steps=2000)),
        ),
        "labels": Version("standard-labels", 1, *_labels(5000)),
    },
    "quick": {
        "scores": Version(
            "quick-scores",
            1,
            budget=(get("query-swap", steps=500), get("sparse-rs", steps=500)),
            minimum=(get("query-swap", steps=500), get("sparse-rs-min", steps=500)),
        ),
        "labels": Version("quick-labels", 1, *_labels(500)),
    },
}


def too_large(member: Attack, problem: Problem) -> bool:
    """Whether a member that asks about every single change would take more steps for them than it has."""
    if not isinstance(member, Corner):
        return False
    return member.needed(problem) > member.steps


def most_queries(members: Sequence[Attack], problem: Problem, draws: int = 1) -> int:
    """The most that the members ask about one sample, forwards and backwards, besides checks of what they find."""
    return draws * sum(_most(member, problem) for member in members)


def _most(member: Attack, problem: Problem) -> int:
    if member.limit is not None:
        return member.limit
    if not isinstance(member, Corner):
        return member.iterations * (2 if member.needs == "gradients" else 1)
    after = member.steps if problem.budget is None else member.needed(problem)
    more = 0 if (problem.budget or 0) < 2 else member.pairs + (problem.budget or 0) - 2
    return min(member.steps, after + more) * member.width


def choose(version: str, attacks_to_run: Sequence[Any], eps: int | None, ability: Ability = "gradients") -> Version:
    """A version by name, or one of the caller's own attacks; `eps` is what they must be able to answer.

    On a model of less ability than gradients a version has other members, and another name that says so.

    >>> str(choose("custom", ["fmn", "sparse-rs"], eps=10)), [m.name for m in choose("quick", [], 10).members(10)][-1]
    ('custom 0', 'sparse-rs')
    >>> str(choose("quick", [], 10, "labels"))
    'quick-labels 1'
    """
    if version != "custom":
        if attacks_to_run:
            raise ValueError(f'attacks_to_run needs version="custom"; version={version!r} is frozen')
        return _frozen(version, ability)
    if isinstance(attacks_to_run, str) or not attacks_to_run:
        raise ValueError(f'version="custom" needs attacks_to_run=["sigma-zero", ...], got {attacks_to_run!r}')
    members = tuple(attack_of(each) for each in attacks_to_run)
    names = [member.name for member in members]
    if len(set(names)) < len(names):
        raise ValueError(f"attacks_to_run names an attack twice: {', '.join(names)}; give each a name of its own")
    for member in members:
        if eps is None and member.kind == "budget":
            raise ValueError(f"{member.name} needs a budget: pass eps=k, or take an attack such as sparse-rs-min")
        if "untargeted" not in member.goals:
            raise ValueError(f"{member.name} has no untargeted form; leave it out of attacks_to_run")
    return Version("custom", 0, members, members)


def _frozen(version: str, ability: Ability) -> Version:
    """A version by name, as it is on a model of this ability."""
    if version not in VERSIONS:
        raise ValueError(f"version={version!r} is not one of {', '.join(map(repr, (*VERSIONS, 'custom')))}")
    if ability == "gradients":
        return VERSIONS[version]
    if version not in BLACK_BOX:
        raise ValueError(f"version={version!r} needs gradients, and this model has {ability} alone; use 'standard'")
    return BLACK_BOX[version][ability]
