"""List the attacks of each cascade in their order: fixed lists, so that evaluations can be compared.

Raise a cascade's number whenever one of its lists changes: every record carries it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sigmazero.adapters.foreign import attack_of
from sigmazero.attacks import get
from sigmazero.attacks.corner import Corner
from sigmazero.core.attack import Attack
from sigmazero.core.findings import Finding
from sigmazero.core.model import Ability
from sigmazero.core.problem import Problem
from sigmazero.report.findings import GRADIENTS

FEW = 4  # changes up to which trying them one by one beats a search
Question = Literal["few", "budget", "minimum"]


@dataclass(frozen=True)
class Cascade:
    """Attacks that run one after the other, under a name and a number.

    draws  how many answers of a random model are averaged; 1 for a model that is not random
    """

    name: str
    number: int
    attacks: tuple[Attack, ...]
    draws: int = 1

    def __str__(self) -> str:
        """Return name and number, as records show them."""
        return f"{self.name} {self.number}"

    def relevant(self, findings: Sequence[Finding]) -> list[Finding]:
        """Return the findings that matter here: gradients must be used to mislead, and averaging answers randomness."""
        idle = () if any(attack.needs == "gradients" for attack in self.attacks) else GRADIENTS
        return [each for each in findings if each.code not in idle and not (self.draws > 1 and each.code == "SZ003")]

    def fitting(self, problem: Problem) -> list[Attack]:
        """Return the attacks that honour the problem's space, and have the steps for every single change they try.

        Of a list of the caller's own, an attack that lacks steps refuses the problem itself.
        """
        found = []
        for attack in self.attacks:
            short = self.number and isinstance(attack, Corner) and attack.needed(problem) > attack.steps
            if not short and (attack.spaces or not problem.domain.snaps):
                found.append(attack)
        if not found:
            names = ", ".join(attack.name for attack in self.attacks)
            raise ValueError(f"{names} cannot honour a space that is more than a box; add sigma-zero or sigma-swap")
        return found

    def most_queries(self, attack: Attack, problem: Problem) -> int:
        """Return the most that an attack asks about one sample, besides checks of what it finds."""
        if attack.limit is not None:
            return self.draws * attack.limit
        if not isinstance(attack, Corner):
            return self.draws * attack.iterations * (2 if attack.needs == "gradients" else 1)
        budget = problem.budget or 0
        after = attack.needed(problem) if budget else attack.steps
        more = attack.pairs + budget - 2 if budget > 1 else 0
        return self.draws * min(attack.steps, after + more) * attack.width


def _of(
    name: str,
    *,
    budget: Sequence[Attack],
    minimum: Sequence[Attack],
    few: Sequence[Attack] | None = None,
    draws: int = 1,
) -> dict[Question, Cascade]:
    lists: dict[Question, Sequence[Attack]] = {"few": few or budget, "budget": budget, "minimum": minimum}
    return {question: Cascade(name, 1, tuple(attacks), draws) for question, attacks in lists.items()}


# The attacks that the standard cascade begins with, whatever the budget.
_FIRST = (
    get("sigma-swap", queries=2000),
    get("sigma-zero-star", steps=1000),
    get("spgd-unprojected", steps=10_000),
    get("sparse-rs", steps=5000),
)
_FIRST_MINIMUM = (
    get("sigma-swap", queries=2000),
    get("sigma-zero-star", steps=1000),
    get("spgd-unprojected-min", steps=5000),
    get("sparse-rs-min", steps=5000),
)
_CORNERS = get("corner-at", steps=266)  # all corners of 1,024 pixels with three channels, and pairs after them
_SCORES = (get("query-swap", steps=5000), get("sparse-rs", steps=5000))
_LABELS, _QUICK_LABELS = [get("label-swap", steps=5000)], [get("label-swap", steps=500)]

CASCADES: dict[str, dict[Question, Cascade]] = {
    "standard": _of(
        "standard",
        few=(*_FIRST, _CORNERS, get("sparse-rs-inner", steps=2000)),
        budget=(*_FIRST, get("query-swap", steps=4000), get("sparse-rs-inner", steps=4000)),
        minimum=(*_FIRST_MINIMUM, get("corner", steps=100), get("query-swap", steps=2000)),
    ),
    "quick": _of(
        "quick",
        budget=(get("sigma-swap", queries=500), get("sparse-rs", steps=500)),
        minimum=(get("sigma-swap", queries=500), get("sparse-rs-min", steps=500)),
    ),
    "rand": _of(
        "rand",
        budget=(get("sigma-swap", queries=500), get("sigma-zero-star", steps=200), get("sparse-rs", steps=1000)),
        minimum=(get("sigma-swap", queries=500), get("sigma-zero-star", steps=200), get("sparse-rs-min", steps=1000)),
        draws=16,
    ),
    # For models without gradients: their figures cannot be compared with those above.
    "standard-scores": _of(
        "standard-scores",
        few=(*_SCORES, _CORNERS, get("sparse-rs-inner", steps=2000)),
        budget=(*_SCORES, get("sparse-rs-inner", steps=2000)),
        minimum=(_SCORES[0], get("sparse-rs-min", steps=5000)),
    ),
    "quick-scores": _of(
        "quick-scores",
        budget=(get("query-swap", steps=500), get("sparse-rs", steps=500)),
        minimum=(get("query-swap", steps=500), get("sparse-rs-min", steps=500)),
    ),
    "standard-labels": _of("standard-labels", budget=_LABELS, minimum=_LABELS),
    "quick-labels": _of("quick-labels", budget=_QUICK_LABELS, minimum=_QUICK_LABELS),
}
VERSIONS = ("standard", "quick", "rand", "custom")


def cascade_of(
    version: str, attacks: Sequence[Any] = (), eps: int | None = None, ability: Ability = "gradients"
) -> Cascade:
    """Return the cascade of a version for a number of changes (None: as few as possible) and a model's ability.

    >>> str(cascade_of("custom", ["fmn", "sparse-rs"], 10)), [each.name for each in cascade_of("quick").attacks]
    ('custom 0', ['sigma-swap', 'sparse-rs-min'])
    >>> str(cascade_of("quick", [], 10, "labels"))
    'quick-labels 1'
    """
    if version == "custom":
        return _custom(attacks, eps)
    if attacks:
        raise ValueError(f'attacks_to_run needs version="custom"; version={version!r} is a fixed list')
    if version not in VERSIONS:
        raise ValueError(f"version={version!r} is not one of {', '.join(map(repr, VERSIONS))}")
    name = version if ability == "gradients" else f"{version}-{ability}"
    if name not in CASCADES:
        raise ValueError(f"version={version!r} needs gradients, and this model has {ability} alone; use 'standard'")
    return CASCADES[name]["minimum" if eps is None else "few" if eps <= FEW else "budget"]


def _custom(attacks: Sequence[Any], eps: int | None) -> Cascade:
    if isinstance(attacks, str) or not attacks:
        raise ValueError(f'version="custom" needs attacks_to_run=["sigma-zero", ...], got {attacks!r}')
    members = tuple(attack_of(each) for each in attacks)
    names = [member.name for member in members]
    if len(set(names)) < len(names):
        raise ValueError(f"attacks_to_run has an attack twice: {', '.join(names)}; give each a name of its own")
    for member in members:
        if eps is None and member.kind == "budget":
            raise ValueError(f"{member.name} needs a budget: pass eps=k, or take an attack such as sparse-rs-min")
        if "untargeted" not in member.goals:
            raise ValueError(f"{member.name} has no untargeted form; leave it out of attacks_to_run")
    return Cascade("custom", 0, members)
