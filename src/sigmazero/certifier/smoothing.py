"""`sz.smooth`: randomized ablation (Levine and Feizi, 2020, https://arxiv.org/abs/1911.09272).

The smoothed classifier shows the base model many copies of an input in which all but a few random sites are blank, and
takes the class that is returned most often. A change of r sites alters the copies that show one of them and no others,
so a class that is far enough ahead stays ahead. That is proved of the smoothed classifier, for any base model, and says
nothing about the base model itself.

>>> import torch, sigmazero as sz
>>> model = lambda x: torch.stack([x.sum(1), torch.full((len(x),), 0.5)], 1)
>>> sz.smooth(model, torch.ones(1, 64), torch.tensor([0]), keep=4, draws=1000)
<Smoothed of 1 samples: 4 of 64 features kept, 1000 draws, 100.0% certified at 0 changes, median radius 9>
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from sigmazero.core import noise
from sigmazero.core.attack import as_model
from sigmazero.core.domain import Unit
from sigmazero.core.inputs import make_problem
from sigmazero.core.model import logits_in
from sigmazero.core.oracle import Model
from sigmazero.core.problem import Problem, integer
from sigmazero.run.memory import at_most
from sigmazero.run.precision import Numbers, turn
from sigmazero.run.progress import bar

Blank = Literal["value", "doubled"]
ROWS = 1000  # copies asked about at once
# The sums below are of positive numbers that are each right to about 1e-9 at a million draws. By so much the error that
# an interval may make is reduced, so that rounding never makes an interval too narrow.
ROUNDING = 1e-6


@dataclass(frozen=True, repr=False)
class Smoothed:
    """Hold what is proved of a smoothed classifier, one row per sample; it says nothing about the base model.

    prediction  its class, or −1 where it abstains: the draws do not tell which class has the most votes
    radius      with so many changes or fewer the class stays; −1 where it abstains
    lower       the least chance of its class, by the draws
    upper       the greatest chance of any other
    counts      votes of each class (samples, classes)
    label       the true classes
    """

    prediction: Tensor
    radius: Tensor
    lower: Tensor
    upper: Tensor
    counts: Tensor
    label: Tensor
    keep: int
    draws: int
    sites: int
    confidence: float
    unit: Unit = "feature"

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.prediction)

    @property
    def right(self) -> Tensor:
        """Return whether the class is the true one."""
        return self.prediction == self.label

    @property
    def abstained(self) -> Tensor:
        """Return whether it gives no class."""
        return self.prediction < 0

    @property
    def queries(self) -> int:
        """Return how many copies the base model was asked about, for all samples together."""
        return len(self) * self.draws

    def accuracy(self, changes: int = 0) -> float:
        """Return the share of ALL samples that are right and stay so with at most `changes` changes."""
        return float((self.right & (self.radius >= changes)).double().mean())

    def curve(self) -> list[tuple[int, float]]:
        """Return certified accuracy at 0, 1, 2, ... changes, up to the first number at which it is 0."""
        most = int(self.radius[self.right].max()) if bool(self.right.any()) else -1
        return [(changes, self.accuracy(changes)) for changes in range(most + 2)]

    @property
    def median_radius(self) -> float:
        """Return the median over all samples of the radius; −1 for those that are wrong."""
        reach = torch.where(self.right, self.radius, -1).double().sort().values
        return float((reach[(len(reach) - 1) // 2] + reach[len(reach) // 2]) / 2)

    def __repr__(self) -> str:
        """Return one line with the main figures."""
        return (
            f"<Smoothed of {len(self)} samples: {self.keep} of {self.sites} {self.unit}s kept, {self.draws} draws, "
            f"{self.accuracy():.1%} certified at 0 changes, median radius {self.median_radius:g}>"
        )


@dataclass(frozen=True)
class Ablation:
    """Draw copies of an input that show `keep` of its sites; the others are blank."""

    keep: int
    draws: int
    blank: Blank
    null: float | Tensor

    def copies(self, problem: Problem, rows: Tensor, draw: Tensor) -> Tensor:
        """Return one copy per row and number of the draw, which alone decide what is shown."""
        scores = noise.bits(problem.seed, problem.ids[rows], draw, (problem.sites,))
        shown = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, scores.topk(self.keep, dim=1).indices, True)
        x = problem.x[rows]
        shown = shown.view(len(x), 1, *x.shape[2:]) if problem.domain.joined else shown.view_as(x)
        return blanked(x, shown, self.blank, self.null)


def blanked(x: Tensor, shown: Tensor, blank: Blank = "value", null: float | Tensor = 0.0) -> Tensor:
    """Blank what is not shown: `null` there; or values x and 1 − x side by side, and 0 twice for a blank.

    >>> blanked(torch.tensor([[0.25, 1.0]]), torch.tensor([[True, False]]), "doubled")
    tensor([[0.2500, 0.0000, 0.7500, 0.0000]])
    """
    if blank == "doubled":
        return torch.cat([torch.where(shown, x, 0.0), torch.where(shown, 1 - x, 0.0)], 1)
    return torch.where(shown, x, torch.as_tensor(null, dtype=x.dtype, device=x.device))


def smooth(
    model: object,
    x: Tensor,
    y: Tensor,
    *,
    keep: int,
    draws: int = 1000,
    confidence: float = 0.999,
    unit: Unit = "feature",
    blank: Blank = "value",
    null: float | Tensor = 0.0,
    seed: int = 0,
    ids: Tensor | Sequence[int] | None = None,
    batch_size: int | None = None,
    progress: bool = False,
) -> Smoothed:
    """Certify the smoothed classifier of a model on every row of x; experimental.

    For each row: the class that it gives, and how many changes it stands.

    model       anything that attacks take; it should have been trained on blanked inputs
    y           true classes, which say what is right; they decide nothing else
    keep        how many random sites a copy shows
    draws       how many copies of each row are asked about
    confidence  with which a row's class and radius hold, over the draws; a row's own, not that of all rows together
    unit        "feature" counts and blanks every scalar, "pixel" a position with all its channels
    blank       "value": blanks have the value `null` (a number, or a tensor as one input has it); "doubled": the model
                takes twice the channels, x and 1 − x, which are both 0 where an input is blank
    seed, ids   what is shown depends on these and the number of the draw alone, not on the batch
    batch_size  how many copies are asked about at once
    """
    problem = _posed(x, y, blank, unit=unit, seed=seed, ids=ids)
    how = Ablation(*_checked(problem, keep, draws, blank, null))
    if not 0.5 < confidence < 1:
        raise ValueError(f"confidence={confidence!r} must lie between 0.5 and 1, such as 0.999")
    if batch_size is not None and not (integer(batch_size) and batch_size >= 1):
        raise ValueError(f"batch_size={batch_size!r} must be a whole number, 1 or more")
    counts = votes(as_model(model, problem.x), problem, how, batch_size, progress)
    error = (1 - confidence) / (2 * counts.shape[1])  # so all ends of a row's intervals hold together
    ends = [[clopper_pearson(int(count), draws, error) for count in row] for row in counts]
    found = [_verdict(row, problem.sites, keep) for row in ends]
    best, reach, lower, upper = (torch.tensor([each[k] for each in found]) for k in range(4))
    return Smoothed(best, reach, lower, upper, counts, problem.y.cpu(), keep, draws, problem.sites, confidence, unit)


def votes(model: Model, problem: Problem, how: Ablation, batch_size: int | None, progress: bool) -> Tensor:
    """Count how often each class was returned (samples, classes); logits that are not finite vote for none."""
    device, total = problem.x.device, len(problem) * how.draws
    counts: Tensor | None = None
    size = at_most(model, ROWS) if batch_size is None else batch_size
    with bar(f"{how.draws} copies of each", total, progress, "copies") as advance:
        for start in range(0, total, size):
            place = torch.arange(start, min(start + size, total), device=device)
            rows = place // how.draws
            copies = how.copies(problem, rows, place % how.draws)
            with turn(model, device, Numbers.current(device)):
                logits = _logits(model(copies), len(copies))
            if counts is None:
                _check_labels(problem, logits.shape[1])
                counts = torch.zeros(len(problem), logits.shape[1], dtype=torch.int64, device=device)
            finite = logits.isfinite().all(1)
            counts.index_put_((rows[finite], logits.argmax(1)[finite]), place.new_ones(()), accumulate=True)
            advance(len(place))
    if counts is None:
        raise ValueError("there are no inputs to certify: x has no rows")
    return counts.cpu()


def _logits(answer: Any, rows: int) -> Tensor:
    logits = logits_in(answer)
    if logits.ndim != 2 or len(logits) != rows or logits.shape[1] < 2:
        raise ValueError(
            f"the model returned shape {tuple(logits.shape)} for {rows} inputs; expected ({rows}, classes), "
            "2 classes or more"
        )
    return logits


def _check_labels(problem: Problem, classes: int) -> None:
    if int(problem.y.max()) >= classes:
        row = int(problem.y.argmax())
        raise ValueError(f"label {int(problem.y[row])} in row {row} is none of the model's {classes} classes")


def _verdict(ends: list[tuple[float, float]], sites: int, keep: int) -> tuple[int, int, float, float]:
    """Return the class that is proved to have the most votes, its radius, and the two chances behind it; or −1."""
    best = max(range(len(ends)), key=lambda k: ends[k])
    lower = ends[best][0]
    # What the others have together is also what the first has not.
    upper = min(math.nextafter(1 - lower, 2), max(high for k, (_, high) in enumerate(ends) if k != best))
    reach = radius(lower, upper, sites, keep)
    return best if reach >= 0 else -1, reach, lower, upper


def _posed(x: Tensor, y: Tensor, blank: object, **how: Any) -> Problem:
    """Return the inputs, checked; doubled ones must lie in [0, 1], others anywhere."""
    if blank not in get_args(Blank):
        raise ValueError(f"blank={blank!r} is not one of {', '.join(map(repr, get_args(Blank)))}")
    return make_problem(x, y, bounds=(0.0, 1.0) if blank == "doubled" else (-torch.inf, torch.inf), **how)


def _checked(
    problem: Problem, keep: int, draws: int, blank: Blank, null: float | Tensor
) -> tuple[int, int, Blank, float | Tensor]:
    if not (integer(keep) and 1 <= keep <= problem.sites):
        raise ValueError(f"keep={keep!r} must be a whole number of {problem.unit}s, 1 to {problem.sites}")
    if not (integer(draws) and draws >= 1):
        raise ValueError(f"draws={draws!r} must be a whole number, 1 or more")
    value = torch.as_tensor(null, dtype=problem.x.dtype, device=problem.x.device)
    try:
        value.expand(problem.x.shape[1:])
    except RuntimeError:
        shapes = f"{tuple(value.shape)} fits no input of shape {tuple(problem.x.shape[1:])}"
        raise ValueError(f"null of shape {shapes}; give a number, or a value for each feature") from None
    if not value.isfinite().all():
        raise ValueError("null holds NaN or Inf; give the number that a blank has, such as 0")
    return keep, draws, blank, value


def clopper_pearson(successes: int, draws: int, error: float) -> tuple[float, float]:
    """Return an exact interval for the chance behind a count (Clopper and Pearson, 1934).

    Each end alone is wrong in at most `error` of all experiments.


    >>> [round(end, 4) for end in clopper_pearson(8, 10, 0.025)]
    [0.4439, 0.9748]
    """
    if not (integer(successes) and integer(draws) and 0 <= successes <= draws and draws >= 1):
        raise ValueError(f"{successes} successes of {draws}: there must be one draw or more, and 0 to all successes")
    if not 0 < error < 0.5:
        raise ValueError(f"error={error!r} must lie between 0 and 0.5, such as 0.001")
    upper = math.nextafter(1 - _lower(draws - successes, draws, error), 2)
    return _lower(successes, draws, error), min(1.0, upper)


@lru_cache(maxsize=65536)
def _lower(successes: int, draws: int, error: float) -> float:
    """Return the largest chance at which so many successes or more come up in at most `error` of all experiments."""
    if successes == 0:
        return 0.0
    k = torch.arange(successes, draws + 1, dtype=torch.float64, device="cpu")
    misses = draws - k
    ways = math.lgamma(draws + 1) - torch.lgamma(k + 1) - torch.lgamma(misses + 1)
    low, high = 0.0, successes / draws
    while (middle := (low + high) / 2) not in (low, high):
        tail = (ways + k * math.log(middle) + misses * math.log1p(-middle)).exp().sum()
        low, high = (middle, high) if float(tail) <= error * (1 - ROUNDING) else (low, middle)
    return low


@lru_cache(maxsize=64)
def odds(sites: int, keep: int) -> tuple[Fraction, ...]:
    """Return the odds that `keep` random sites meet one of 0, 1, 2, ... changed ones, up to the first 1/2 or more.

    1 − C(sites − changed, keep) / C(sites, keep), exactly.

    >>> [str(each) for each in odds(8, 2)]
    ['0', '1/4', '13/28', '9/14']
    """
    missed, found = Fraction(1), [Fraction(0)]
    while found[-1] < Fraction(1, 2):
        left = sites - len(found) + 1
        missed *= Fraction(left - keep, left)
        found.append(1 - missed)
    return tuple(found)


def radius(lower: float, upper: float, sites: int, keep: int) -> int:
    """Return how many sites may change before another class can have more votes; −1 where it may already.

    The first class is met with a chance of `lower` or more, each other with one of `upper` or less. Changes alter the
    draws that meet one, and no other: they take their odds from the first at most, and give them to another at most.

    >>> radius(0.99, 0.01, 784, 45), radius(0.5, 0.4, 784, 45), radius(0.3, 0.4, 784, 45)
    (11, 0, -1)
    """
    gap = Fraction(lower) - Fraction(upper)
    return bisect_left(odds(sites, keep), gap / 2) - 1 if gap > 0 else -1
