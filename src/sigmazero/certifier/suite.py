"""The exact suite: how far an attack is from the optimum, on six small networks whose fewest changes are proved.

The networks classify scikit-learn's 8×8 digits. The package has their weights (scripts/train_suite.py), 200 digits that
none was trained on (rows of digits-8x8 that are a multiple of 9), and the answers (scripts/solve_suite.py).

>>> from sigmazero.certifier import suite
>>> suite.run("sigma-zero", ["mlp-standard"], queries=200, limit=3)[0].images
3
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sigmazero.attacks import ATTACKS
from sigmazero.certifier.certify import fitted
from sigmazero.core.attack import Attack
from sigmazero.core.result import Result
from sigmazero.data import Rows

__all__ = ["Answers", "SuiteScore", "answers", "run"]

FEATURES = 64
FOLDER = Path(__file__).with_name("known")
NAMES = ("mlp-standard", "mlp-adversarial", "mlp-sparse", "conv-standard", "conv-sparse", "conv-interval")
EVERY = 9


def _check(name: str) -> None:
    if name not in NAMES:
        raise ValueError(f"the suite has no network {name!r}; it has {', '.join(NAMES)}")


def build(name: str) -> nn.Sequential:
    """Return the layers of a network of the suite, not trained."""
    _check(name)
    if name.startswith("mlp"):
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 10)
        )
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def network(name: str) -> nn.Sequential:
    """Return a network of the suite."""
    model = build(name)
    with np.load(FOLDER / "networks.npz", allow_pickle=False) as file:
        model.load_state_dict({key: torch.from_numpy(file[f"{name}/{key}"]) for key in model.state_dict()})
    return model.eval().requires_grad_(False)


@cache
def digits() -> Rows:
    """Return the 200 digits: images (200, 1, 8, 8) in [0, 1], their classes, and their rows in the data set."""
    with np.load(FOLDER / "digits.npz", allow_pickle=False) as file:
        images, labels = torch.from_numpy(file["images"]), torch.from_numpy(file["labels"])
    return Rows(images[:, None].float() / 16, labels.long(), torch.arange(len(labels)) * EVERY, "digits-8x8")


@dataclass(frozen=True)
class Answers:
    """Bounds for a network: `lower` to `upper` changes are needed.

    `witness` has points with `upper` changes. Where none is known, `upper` is one more than the number of features.
    """

    lower: Tensor
    upper: Tensor
    witness: Tensor

    @staticmethod
    def of(file: Mapping[str, Any], name: str) -> "Answers":
        """Read the answers for a network from a file of several."""
        lower, upper = (torch.from_numpy(file[f"{name}/{kind}"].astype(np.int64)) for kind in ("lower", "upper"))
        return Answers(lower, upper, torch.from_numpy(file[f"{name}/witness"]).view(-1, 1, 8, 8))

    @property
    def exact(self) -> Tensor:
        """Return where the fewest changes are known."""
        return self.lower == self.upper


@dataclass(frozen=True)
class SuiteScore:
    """Figures of an attack on one network of the suite, or on several.

    gap      mean of changes / fewest changes − 1 over the images that are right; an image that was not fooled counts as
             all features. For an open image, the fewest known changes count as the fewest
    gap_most the same, but for an open image the proved lower bound counts
    optimal  share of right and solved images on which the attack reaches the fewest changes
    asr, median_l0  of all images
    queries  mean number of forwards and backwards per image
    better   number of images with fewer changes than were known
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
    """Return the proved bounds of a network of the suite."""
    _check(name)
    with np.load(FOLDER / "answers.npz", allow_pickle=False) as file:
        return Answers.of(file, name)


def entrants() -> list[str]:
    """Return the names of all attacks that look for the fewest changes."""
    return [name for name, attack in ATTACKS.items() if attack.kind == "minimum-norm"]


def run(
    attack: str | Attack,
    networks: Sequence[str] = NAMES,
    *,
    queries: int = 1000,
    limit: int | None = None,
    seed: int = 0,
) -> list[SuiteScore]:
    """Run an attack on networks of the suite; return a score for each, and one for all if there are several.

    attack   a name, which gets as many steps as `queries` allow (see `fitted`), or an attack
    limit    use only the first `limit` of the 200 images
    """
    found = results(attack, networks, queries=queries, limit=limit, seed=seed)
    name = attack if isinstance(attack, str) else attack.name
    scores = [score(name, [each], [result]) for each, result in found.items()]
    return scores if len(found) < 2 else [*scores, score(name, list(found), list(found.values()))]


def results(
    attack: str | Attack, networks: Sequence[str], *, queries: int = 1000, limit: int | None = None, seed: int = 0
) -> dict[str, Result]:
    """Return the results of an attack by network."""
    method, ours = fitted(attack, queries), digits()
    if limit is not None and not 1 <= limit <= len(ours.labels):
        raise ValueError(f"limit={limit!r} must be a whole number, 1 to {len(ours.labels)}")
    images, labels, ids = ours.images[:limit], ours.labels[:limit], ours.ids[:limit]
    models = {name: network(name) for name in networks}
    return {name: method.run(model, images, labels, seed=seed, ids=ids) for name, model in models.items()}


def known(networks: Sequence[str], limit: int | None = None) -> Answers:
    """Return the answers of several networks for the first images, one after the other."""
    every = [answers(name) for name in networks]
    parts = ((each.lower[:limit], each.upper[:limit], each.witness[:limit]) for each in every)
    return Answers(*map(torch.cat, zip(*parts, strict=True)))


def score(attack: str, networks: Sequence[str], found: Sequence[Result]) -> SuiteScore:
    """Score results, one for each of these networks, against the proved bounds."""
    every, truth = Result.join(found), known(networks, len(found[0]))
    name = networks[0] if len(networks) == 1 else "all"
    gap, gap_most, optimal = gaps(truth, every.l0, f"{attack} on {name}")
    return SuiteScore(
        attack=attack,
        network=name,
        images=len(every),
        gap=gap,
        gap_most=gap_most,
        optimal=optimal,
        asr=every.asr(),
        median_l0=every.median_l0,
        queries=float((every.forwards + every.backwards).double().mean()),
        seconds=every.seconds,
        better=int((every.l0 < truth.upper).sum()),
    )


def gaps(known: Answers, l0: Tensor, who: str = "this") -> tuple[float, float, float]:
    """Return `gap`, `gap_most` and `optimal` for numbers of changes, infinite where an image was not fooled."""
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
    first, second, third = (needed / fewest - 1).mean(), (needed / least - 1).mean(), optimal.double().mean()
    return float(first), float(second), float(third)
