"""The exact suite: how far an attack is from the truth, on networks whose fewest changes are known.

>>> from sigmazero.certifier import suite
>>> suite.run("sigma-zero", ["mlp-standard"], queries=200, limit=3)[0].images
3
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sigmazero.attacks import ATTACKS, get
from sigmazero.certifier.digits import FOLDER, NAMES, digits, network
from sigmazero.core.attack import Attack
from sigmazero.core.result import Result

__all__ = ["Answers", "SuiteScore", "answers", "run"]

FEATURES = 64
ROUNDS = 100  # steps, or fewer: then a step asks many times, and the attack keeps its own number


@dataclass(frozen=True)
class Answers:
    """What is proved of a network: `lower` to `upper` changes, the same where it is solved, and points with `upper`.

    Where no point is known that fools the network, `upper` is one more than the number of features.
    """

    lower: Tensor
    upper: Tensor
    witness: Tensor

    @property
    def exact(self) -> Tensor:
        """Where the fewest changes are known."""
        return self.lower == self.upper

    def take(self, first: int) -> "Answers":
        """Those of the first images."""
        return Answers(self.lower[:first], self.upper[:first], self.witness[:first])

    @staticmethod
    def join(parts: "Sequence[Answers]") -> "Answers":
        """Those of several networks, one after the other."""
        return Answers(*(torch.cat([getattr(part, each.name) for part in parts]) for each in fields(Answers)))


@dataclass(frozen=True)
class SuiteScore:
    """An attack on a network of the suite, or on several.

    gap      mean of changes over fewest changes − 1, of the images that are right; an image that was not fooled counts
             as one with all features changed. Where an image is open, the fewest known stand for the fewest
    gap_most the same where the fewest that are not ruled out stand for the fewest
    optimal  share of the images that are right and solved on which the attack needs no more than the fewest
    asr, median_l0  of all images, as everywhere
    queries  mean number of forwards and backwards for an image
    better   images on which it needs fewer changes than were known
    """

    attack: str
    network: str
    images: int
    gap: float
    gap_most: float
    optimal: float
    asr: float
    median_l0: float
    queries: float
    seconds: float
    better: int = 0


@cache
def answers(name: str) -> Answers:
    """What is proved of a network of the suite."""
    if name not in NAMES:
        raise ValueError(f"the suite has no network {name!r}; it has {', '.join(NAMES)}")
    with np.load(FOLDER / "answers.npz", allow_pickle=False) as file:
        lower, upper = (torch.from_numpy(file[f"{name}/{kind}"].astype(np.int64)) for kind in ("lower", "upper"))
        return Answers(lower, upper, torch.from_numpy(file[f"{name}/witness"]).view(-1, 1, 8, 8))


def entrants() -> list[str]:
    """The attacks that can enter: those that look for the fewest changes."""
    return [name for name, attack in ATTACKS.items() if attack.kind == "minimum-norm"]


def run(
    attack: str | Attack,
    networks: Sequence[str] = NAMES,
    *,
    queries: int = 1000,
    limit: int | None = None,
    seed: int = 0,
) -> list[SuiteScore]:
    """An attack on networks of the suite: a score for each, and where there are several one for all.

    attack   a name, which gets the steps that `queries` allow (see `fitted`), or an attack, run as it is
    limit    the first so many of the 200 images
    """
    found = results(attack, networks, queries=queries, limit=limit, seed=seed)
    name = attack if isinstance(attack, str) else attack.name
    scores = [score(name, [each], [result]) for each, result in found.items()]
    return scores if len(found) < 2 else [*scores, score(name, list(found), list(found.values()))]


def results(
    attack: str | Attack, networks: Sequence[str], *, queries: int = 1000, limit: int | None = None, seed: int = 0
) -> dict[str, Result]:
    """What an attack finds on networks of the suite, by their names."""
    method = fitted(attack, queries) if isinstance(attack, str) else attack
    check_kind(method)
    ours = digits()
    if limit is not None and not 1 <= limit <= len(ours.labels):
        raise ValueError(f"limit={limit!r} must be a whole number, 1 to {len(ours.labels)}")
    images, labels, rows = ours.images[:limit], ours.labels[:limit], ours.rows[:limit]
    models = {name: network(name) for name in networks}
    return {name: method.run(model, images, labels, seed=seed, ids=rows) for name, model in models.items()}


def check_kind(method: Attack) -> None:
    """Refuse an attack that does not look for the fewest changes."""
    if method.kind != "minimum-norm":
        raise ValueError(f"{method.name} works with a fixed budget and has no fewest changes; try {method.name}-min")


def fitted(name: str, queries: int) -> Attack:
    """An attack with about so many queries: as its `queries`, or as steps of 2 (with gradients) or 1 (without)."""
    attack = get(name)
    if queries < 20:
        raise ValueError(f"queries={queries!r} must be a whole number, 20 or more")
    changed: dict[str, Any] = {}
    if "queries" in attack.parameters():
        changed = {"queries": queries}
    elif attack.steps > ROUNDS:
        changed = {"steps": queries // 2 if attack.needs == "gradients" else queries}
    return replace(attack, **changed)


def score(attack: str, networks: Sequence[str], found: Sequence[Result]) -> SuiteScore:
    """The figures of results, one for each of these networks, against what is proved."""
    every = Result.join(found)
    known = Answers.join([answers(name).take(len(part)) for name, part in zip(networks, found, strict=True)])
    name = networks[0] if len(networks) == 1 else "all"
    gap, gap_most, optimal = gaps(known, every.l0, f"{attack} on {name}")
    return SuiteScore(
        attack=attack,
        network=name,
        images=len(every),
        gap=gap,
        gap_most=gap_most,
        optimal=optimal,
        asr=every.asr(),
        median_l0=every.median_l0,
        queries=_mean((every.forwards + every.backwards).double()),
        seconds=every.seconds,
        better=int((every.l0 < known.upper).sum()),
    )


def gaps(known: Answers, l0: Tensor, who: str = "this") -> tuple[float, float, float]:
    """`gap`, `gap_most` and `optimal` of a score, from numbers of changes, infinite where an image was not fooled."""
    wrong = l0 < known.lower
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise RuntimeError(
            f"{who} fools image {row} with {float(l0[row]):g} changes, where {int(known.lower[row])} are proved to be "
            "needed: the suite or the attack's check is wrong, please report it"
        )
    right = known.upper > 0
    needed = l0.double().clamp_max(FEATURES)[right]
    fewest, least, solved = known.upper[right].clamp_max(FEATURES), known.lower[right], known.exact[right]
    optimal = (l0[right] == known.upper[right])[solved]
    return _mean(needed / fewest - 1), _mean(needed / least - 1), _mean(optimal.double())


def _mean(values: Tensor) -> float:
    return float(values.mean()) if len(values) else math.nan
