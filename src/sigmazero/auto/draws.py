"""Random models: a question is put to several draws of the model and the answers averaged; a majority decides.

The draws are those of torch's own generators, seeded for each draw, so that a question has one answer however often it
is asked. A model that draws from elsewhere still answers, but an evaluation of it cannot be repeated.
"""

import logging
import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from sigmazero.core.messages import one_line
from sigmazero.core.model import logits_in
from sigmazero.core.oracle import Model
from sigmazero.core.problem import Problem
from sigmazero.core.result import Outcome, Result
from sigmazero.run.precision import strictly

log = logging.getLogger(__name__)

TRIALS = 64  # fresh draws that a point is asked about before it counts
CONFIDENCE = 0.95  # that a point which counts is wrong in more than half of all draws


def needed(trials: int = TRIALS, confidence: float = CONFIDENCE) -> int:
    """How many of the trials must be wrong: a fair coin falls so often with at most 1 - confidence.

    >>> needed(64)
    40
    """
    tail = 0
    for count in range(trials, -1, -1):
        tail += math.comb(trials, count)
        if tail > (1 - confidence) * 2**trials:
            return count + 1
    return 0


class Expected(nn.Module):
    """The mean answer of a random model over some draws, always the same ones; gradients are those of the mean."""

    def __init__(self, model: Model, draws: int, seed: int) -> None:
        super().__init__()
        self.model, self.draws, self.seed = model, draws, seed
        self._alike: bool | None = None  # whether all rows can be given the same draw; known after the first call

    def forward(self, x: Tensor) -> Tensor:
        """The mean of the logits."""
        return torch.stack([self.draw(x, number) for number in range(self.draws)]).mean(0)

    def draw(self, x: Tensor, number: int) -> Tensor:
        """The answer in one draw. All rows get the same one where torch can do that: a row's company is no matter."""
        alike = self.alike(x)
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
            torch.manual_seed(self.seed * 1_000_003 + number)
            return self._rowwise(x) if alike else logits_in(self.model(x))

    def alike(self, x: Tensor) -> bool:
        """Whether all rows can be given the same draw; found out once."""
        if self._alike is None:
            self._alike = self._can_be_alike(x)
        return self._alike

    def _rowwise(self, x: Tensor) -> Tensor:
        def one(row: Tensor) -> Tensor:
            return logits_in(self.model(row[None]))[0]

        found: Tensor = torch.func.vmap(one, randomness="same")(x)
        return found

    def _can_be_alike(self, x: Tensor) -> bool:
        """Models are anybody's code, and some do what cannot be done for all rows at once: they draw for each row."""
        try:
            with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []), torch.no_grad():
                self._rowwise(x[:1])
        except Exception as error:  # whatever a model's own code makes of vmap; asked as it is, it answers
            log.warning("rows draw each for itself (%s): results may depend on the batch", one_line(error))
            return False
        return True


class Voted(nn.Module):
    """A random model as one that is not: how many of some draws, always the same ones, name each class."""

    ability = "scores"

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self._draws = model, Expected(model, TRIALS, seed=0)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """The model's own: its weights are known by their hash."""
        return self.model.state_dict(*args, **kwargs)

    def forward(self, x: Tensor) -> Tensor:
        """The votes, as numbers; a row's company is no matter."""
        with torch.no_grad():
            parts = [x] if len(x) and self._draws.alike(x) else torch.split(x, 1)
            return torch.cat([self._votes(part) for part in parts])

    def _votes(self, x: Tensor) -> Tensor:
        logits = torch.stack([self._draws.draw(x, number) for number in range(TRIALS)])
        return nn.functional.one_hot(logits.argmax(2), logits.shape[2]).sum(0).to(x.dtype)


def confirmed(result: Result, problem: Problem, model: Expected) -> Result:
    """A result in which only those points count that a majority of fresh draws calls wrong, and all calls are counted.

    A sample whose clean input is wrong already stays as it is.
    """
    held = (result.found & (result.outcome != Outcome.ALREADY)).cpu()
    rows = held.nonzero().squeeze(1).to(problem.x.device)
    wrong = torch.zeros(len(rows), dtype=torch.int64, device=problem.x.device)
    if len(rows):
        part = problem.take(rows)
        points = result.x_adv[rows.to(result.x_adv.device)].to(part.x)
        with strictly(model, part.x.device), torch.no_grad():
            for number in range(TRIALS):
                wrong += part.goal.fooled(model.draw(points, model.draws + number)).long()
    lost = torch.zeros_like(held)
    lost[rows.cpu()] = (wrong < needed()).cpu()
    lost = lost.to(result.success.device)
    clean = problem.x
    asked = torch.where(held.to(result.forwards.device), TRIALS, 0)
    return replace(
        result,
        x_adv=torch.where(lost.view(-1, *[1] * (clean.ndim - 1)).to(result.x_adv.device), clean, result.x_adv),
        success=result.success & ~lost,
        **{name: getattr(result, name).masked_fill(lost, torch.inf) for name in ("l0", "l0_pixel", "cost")},
        outcome=result.outcome.masked_fill(lost, int(Outcome.UNVERIFIED)),
        step_found=result.step_found.masked_fill(lost, -1),
        prediction=torch.where(lost, result.clean_prediction, result.prediction),
        forwards=result.forwards * model.draws + asked,
        backwards=result.backwards * model.draws,
    )
