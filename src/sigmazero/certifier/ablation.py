"""`sz.smooth`: randomized ablation (Levine and Feizi, 2020, https://arxiv.org/abs/1911.09272).

The smoothed classifier shows the base model many copies of an input in which all but a few random sites are blank, and
takes the class that is met most often. A change of r sites alters the copies that show one of them and no others; so a
class that is far enough ahead stays ahead. That is proved of the smoothed classifier, for any base model, and says
nothing about the base model itself.

>>> import torch, sigmazero as sz
>>> model = lambda x: torch.stack([x.sum(1), torch.full((len(x),), 0.5)], 1)
>>> sz.smooth(model, torch.ones(1, 64), torch.tensor([0]), keep=4, draws=1000)
<Smoothed of 1 samples: 4 of 64 features kept, 1000 draws, 100.0% certified at 0 changes, median radius 9>
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from sigmazero.certifier.binomial import clopper_pearson, radius
from sigmazero.certifier.smoothed import Smoothed
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


@dataclass(frozen=True)
class Ablation:
    """Which copies of an input are shown: `keep` of its sites, the others blank."""

    keep: int
    draws: int
    blank: Blank
    null: float | Tensor

    def copies(self, problem: Problem, rows: Tensor, draw: Tensor) -> Tensor:
        """One copy per row and number of the draw, which alone decide what is kept."""
        scores = noise.bits(problem.seed, problem.ids[rows], draw, (problem.sites,))
        kept = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, scores.topk(self.keep, dim=1).indices, True)
        x = problem.x[rows]
        kept = kept.view(len(x), 1, *x.shape[2:]) if problem.domain.joined else kept.view_as(x)
        return blanked(x, kept, self.blank, self.null)


def blanked(x: Tensor, kept: Tensor, blank: Blank = "value", null: float | Tensor = 0.0) -> Tensor:
    """Inputs with what is not kept blank: `null` there; or values x and 1 − x side by side, and 0 twice for a blank.

    >>> blanked(torch.tensor([[0.25, 1.0]]), torch.tensor([[True, False]]), "doubled")
    tensor([[0.2500, 0.0000, 0.7500, 0.0000]])
    """
    if blank == "doubled":
        return torch.cat([torch.where(kept, x, 0.0), torch.where(kept, 1 - x, 0.0)], 1)
    return torch.where(kept, x, torch.as_tensor(null, dtype=x.dtype, device=x.device))


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
    """How often each class was met, (samples, classes); a copy with an answer that is not finite votes for none."""
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
    """The class that is proved to have the most votes, or −1; its radius, or −1; and the two chances behind it."""
    best = max(range(len(ends)), key=lambda k: ends[k])
    lower = ends[best][0]
    # What the others have together is also what the first has not.
    upper = min(math.nextafter(1 - lower, 2), max(high for k, (_, high) in enumerate(ends) if k != best))
    reach = radius(lower, upper, sites, keep)
    return best if reach >= 0 else -1, reach, lower, upper


def _posed(x: Tensor, y: Tensor, blank: object, **how: Any) -> Problem:
    """The inputs, checked; doubled ones must lie in [0, 1], and others anywhere."""
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
