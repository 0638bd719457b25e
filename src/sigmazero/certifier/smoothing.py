"""`sz.smooth`: randomized ablation (Levine and Feizi, 2020, https://arxiv.org/abs/1911.09272).

The smoothed classifier shows the base model many copies of an input, in which all but a few random sites are blank, and
takes the most frequent class. Changing r sites alters only the copies that show one of them, so a class that is far
enough ahead stays ahead. This is a proof about the smoothed classifier, for any base model. It says nothing about the
base model itself.

>>> import torch, sigmazero as sz
>>> model = lambda x: torch.stack([x.sum(1), torch.full((len(x),), 0.5)], 1)
>>> sz.smooth(model, torch.ones(1, 64), torch.tensor([0]), keep=4, draws=1000)
<Smoothed of 1 samples: 4 of 64 features kept, 1000 draws, 100.0% certified at 0 changes, median radius 9>
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, get_args

import torch
from torch import Tensor

from sigmazero.certifier.certify import check_labels
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
ROWS = 1000  # copies in a batch, at most
# The sums below have positive terms, each right to about 1e-9 at a million draws. An interval's error is reduced by
# this share, so that rounding never makes an interval too narrow.
ROUNDING = 1e-6


@dataclass(frozen=True, repr=False)
class Smoothed:
    """What is proved of a smoothed classifier, one row per sample; it says nothing about the base model.

    prediction  the class, or −1 where it abstains: the draws do not tell which class has the most votes
    radius      the class stays with at most this many changes; −1 where it abstains
    lower       lower bound of the chance of its class
    upper       upper bound of the chance of any other class
    counts      votes for each class (samples, classes)
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
        """Return whether it abstains."""
        return self.prediction < 0

    def accuracy(self, changes: int = 0) -> float:
        """Return the share of all samples that are right and stay right with at most `changes` changes."""
        return float((self.right & (self.radius >= changes)).double().mean())

    def curve(self) -> list[tuple[int, float]]:
        """Return certified accuracy at 0, 1, 2, ... changes, up to the first at which it is 0."""
        most = int(self.radius[self.right].max()) if bool(self.right.any()) else -1
        return [(changes, self.accuracy(changes)) for changes in range(most + 2)]

    @property
    def median_radius(self) -> float:
        """Return the median radius of all samples; wrong ones count as −1."""
        reach = torch.where(self.right, self.radius, -1).double().sort().values
        return float((reach[(len(reach) - 1) // 2] + reach[len(reach) // 2]) / 2)

    def __repr__(self) -> str:
        """Return one line with the main figures."""
        return (
            f"<Smoothed of {len(self)} samples: {self.keep} of {self.sites} {self.unit}s kept, {self.draws} draws, "
            f"{self.accuracy():.1%} certified at 0 changes, median radius {self.median_radius:g}>"
        )


def blanked(x: Tensor, shown: Tensor, blank: Blank = "value", null: float | Tensor = 0.0) -> Tensor:
    """Blank the sites that are not shown: with `null`, or, for values x and 1 − x side by side, with 0 in both.

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
    """Certify the smoothed classifier of a model on every row of x: its class, and its radius; experimental.

    model       any model that attacks take; it should have been trained on blanked inputs
    y           true classes, used only to say what is right
    keep        number of random sites that a copy shows
    draws       number of copies of each row
    confidence  of each row's class and radius, over the draws
    unit        "feature" counts and blanks every scalar, "pixel" a position with all its channels
    blank       "value": blanks have the value `null` (a number, or a tensor like one input); "doubled": the model takes
                x and 1 − x as twice the channels, and both are 0 where an input is blank
    seed, ids   what a copy shows depends on these and the number of the draw, not on the batch
    batch_size  number of copies in a batch
    """
    if blank not in get_args(Blank):
        raise ValueError(f"blank={blank!r} is not one of {', '.join(map(repr, get_args(Blank)))}")
    box = (0.0, 1.0) if blank == "doubled" else (-torch.inf, torch.inf)
    problem = make_problem(x, y, bounds=box, unit=unit, seed=seed, ids=ids)
    _check_options(problem, keep, draws, null, confidence, batch_size)

    def copies(rows: Tensor, draw: Tensor) -> Tensor:
        scores = noise.bits(problem.seed, problem.ids[rows], draw, (problem.sites,))
        shown = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, scores.topk(keep, dim=1).indices, True)
        x = problem.x[rows]
        shown = shown.view(len(x), 1, *x.shape[2:]) if problem.domain.joined else shown.view_as(x)
        return blanked(x, shown, blank, null)

    counts = _votes(as_model(model, problem.x), problem, copies, draws, batch_size, progress)
    error = (1 - confidence) / (2 * counts.shape[1])  # so that all intervals of a row hold together
    ends = [[clopper_pearson(int(count), draws, error) for count in row] for row in counts]
    found = [_verdict(row, problem.sites, keep) for row in ends]
    best, reach, lower, upper = (torch.tensor([each[k] for each in found]) for k in range(4))
    return Smoothed(best, reach, lower, upper, counts, problem.y.cpu(), keep, draws, problem.sites, confidence, unit)


def _votes(
    model: Model,
    problem: Problem,
    copies: Callable[[Tensor, Tensor], Tensor],
    draws: int,
    batch_size: int | None,
    progress: bool,
) -> Tensor:
    """Count how often each class was returned (samples, classes); logits that are not finite have no vote."""
    device, total = problem.x.device, len(problem) * draws
    counts: Tensor | None = None
    size = at_most(model, ROWS) if batch_size is None else batch_size
    with bar(f"{draws} copies of each", total, progress, "copies") as advance:
        for start in range(0, total, size):
            place = torch.arange(start, min(start + size, total), device=device)
            rows = place // draws
            with turn(model, device, Numbers.current(device)):
                logits = logits_in(model(copies(rows, place % draws)))
            if counts is None:
                counts = _no_votes(problem, logits, len(place))
            finite = logits.isfinite().all(1)
            counts.index_put_((rows[finite], logits.argmax(1)[finite]), place.new_ones(()), accumulate=True)
            advance(len(place))
    assert counts is not None
    return counts.cpu()


def _no_votes(problem: Problem, logits: Tensor, rows: int) -> Tensor:
    """Return counts to begin with, after a look at the first logits."""
    if logits.ndim != 2 or len(logits) != rows or logits.shape[1] < 2:
        shape = tuple(logits.shape)
        raise ValueError(f"the model returned shape {shape} for {rows} inputs; expected ({rows}, classes), 2 or more")
    check_labels(problem, logits.shape[1])
    return torch.zeros(len(problem), logits.shape[1], dtype=torch.int64, device=logits.device)


def _verdict(ends: list[tuple[float, float]], sites: int, keep: int) -> tuple[int, int, float, float]:
    """Return the class that is proved to have the most votes, or −1, its radius, and the two chances."""
    best = max(range(len(ends)), key=lambda k: ends[k])
    lower = ends[best][0]
    upper = min(math.nextafter(1 - lower, 2), max(high for k, (_, high) in enumerate(ends) if k != best))
    reach = radius(lower, upper, sites, keep)
    return best if reach >= 0 else -1, reach, lower, upper


def _check_options(
    problem: Problem, keep: int, draws: int, null: float | Tensor, confidence: float, batch_size: int | None
) -> None:
    if not len(problem):
        raise ValueError("there are no inputs to certify: x has no rows")
    if not (integer(keep) and 1 <= keep <= problem.sites):
        raise ValueError(f"keep={keep!r} must be a whole number of {problem.unit}s, 1 to {problem.sites}")
    for name, count in (("draws", draws), ("batch_size", batch_size)):
        if count is not None and not (integer(count) and count >= 1):
            raise ValueError(f"{name}={count!r} must be a whole number, 1 or more")
    if not 0.5 < confidence < 1:
        raise ValueError(f"confidence={confidence!r} must lie between 0.5 and 1, such as 0.999")
    value = torch.as_tensor(null, dtype=problem.x.dtype)
    try:
        value.expand(problem.x.shape[1:])
    except RuntimeError:
        shapes = f"{tuple(value.shape)} fits no input of shape {tuple(problem.x.shape[1:])}"
        raise ValueError(f"null of shape {shapes}; give a number, or a value for each feature") from None
    if not value.isfinite().all():
        raise ValueError("null holds NaN or Inf; give the number that a blank has, such as 0")


def clopper_pearson(successes: int, draws: int, error: float) -> tuple[float, float]:
    """Return an exact interval for the chance behind a count (Clopper and Pearson, 1934).

    Each end alone is wrong in at most `error` of all experiments.

    >>> [round(end, 4) for end in clopper_pearson(8, 10, 0.025)]
    [0.4439, 0.9748]
    """
    upper = math.nextafter(1 - _lower(draws - successes, draws, error), 2)
    return _lower(successes, draws, error), min(1.0, upper)


@lru_cache(maxsize=65536)
def _lower(successes: int, draws: int, error: float) -> float:
    """Return the largest chance that gives this many successes or more in at most `error` of all experiments."""
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
    """Return the exact chance that `keep` random sites include one of 0, 1, 2, ... changed ones, up to 1/2 or more.

    It is 1 − C(sites − changed, keep) / C(sites, keep).

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
    """Return how many sites may change before another class can have more votes; −1 if it can already.

    The first class has a chance of at least `lower`, any other of at most `upper`. Changes alter only the draws that
    show one of them: at most they move the chance of these draws from the first class to another.

    >>> radius(0.99, 0.01, 784, 45), radius(0.5, 0.4, 784, 45), radius(0.3, 0.4, 784, 45)
    (11, 0, -1)
    """
    gap = Fraction(lower) - Fraction(upper)
    return bisect_left(odds(sites, keep), gap / 2) - 1 if gap > 0 else -1
