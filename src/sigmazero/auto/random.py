"""Attack random models: average the answers of several draws; a majority of fresh draws confirms a point.

The draws come from torch's own generators, seeded for each draw, so that a question always has the same answer. A model
that draws numbers from elsewhere still answers, but its evaluation cannot be repeated.
"""

import logging
from dataclasses import replace

import torch
from torch import Tensor, nn

from sigmazero.core.messages import one_line
from sigmazero.core.model import logits_in
from sigmazero.core.oracle import Model
from sigmazero.core.problem import Problem
from sigmazero.core.result import Outcome, Result
from sigmazero.report.intervals import few_heads
from sigmazero.run.precision import strictly

log = logging.getLogger(__name__)

TRIALS = 64  # fresh draws that a point is shown to before it counts
# Draws that must be wrong: 40. A point that only half of all draws get wrong gets there with a chance of at most 5 %.
NEEDED = TRIALS - few_heads(TRIALS, 0.05)


class Averaged(nn.Module):
    """The mean answer of a random model over some draws, always the same ones; gradients are those of the mean.

    All rows get the same draw, so that a row's answer does not depend on its batch. Where torch cannot do that with
    the model (`torch.func.vmap` fails), each row draws for itself.
    """

    def __init__(self, model: Model, draws: int, seed: int) -> None:
        super().__init__()
        self.model, self.draws, self.seed = model, draws, seed
        self._alike: bool | None = None  # known after the first call

    def extra_repr(self) -> str:
        """Return what decides the answer besides the model."""
        return f"draws={self.draws}, seed={self.seed}"

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean of the logits."""
        return torch.stack([self.draw(x, number) for number in range(self.draws)]).mean(0)

    def draw(self, x: Tensor, number: int) -> Tensor:
        """Return the answer in one draw."""
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
            if self._alike is None:
                self._alike = self._can_be_alike(x[:1])
            torch.manual_seed(self.seed * 1_000_003 + number)
            return self._rowwise(x) if self._alike else logits_in(self.model(x))

    def _rowwise(self, x: Tensor) -> Tensor:
        found: Tensor = torch.func.vmap(lambda row: logits_in(self.model(row[None]))[0], randomness="same")(x)
        return found

    @torch.no_grad()
    def _can_be_alike(self, x: Tensor) -> bool:
        try:
            self._rowwise(x)
        except Exception as error:  # a model's own code may fail in any way under vmap, and work without it
            log.warning("each row draws for itself (%s): results may depend on the batch", one_line(error))
            return False
        return True


def confirmed(result: Result, problem: Problem, model: Averaged) -> Result:
    """Return a result in which only points count that most fresh draws get wrong, and in which all calls are counted.

    A sample whose clean input is already wrong stays as it is.
    """
    claimed = (result.found & (result.outcome != Outcome.ALREADY)).cpu()
    rows = claimed.nonzero().squeeze(1).to(problem.x.device)
    wrong = torch.zeros(len(rows), dtype=torch.int64, device=problem.x.device)
    if len(rows):
        part = problem.take(rows)
        points = result.x_adv[rows.to(result.x_adv.device)].to(part.x)
        with strictly(model, part.x.device), torch.no_grad():
            for number in range(TRIALS):
                wrong += part.goal.fooled(model.draw(points, model.draws + number)).long()
    lost = torch.zeros_like(claimed)
    lost[rows.cpu()] = (wrong < NEEDED).cpu()
    lost = lost.to(result.success.device)
    clean = problem.x
    trials = torch.where(claimed.to(result.forwards.device), TRIALS, 0)
    return replace(
        result,
        x_adv=torch.where(lost.view(-1, *[1] * (clean.ndim - 1)).to(result.x_adv.device), clean, result.x_adv),
        success=result.success & ~lost,
        **{name: getattr(result, name).masked_fill(lost, torch.inf) for name in ("l0", "l0_pixel", "cost")},
        outcome=result.outcome.masked_fill(lost, int(Outcome.UNVERIFIED)),
        step_found=result.step_found.masked_fill(lost, -1),
        prediction=torch.where(lost, result.clean_prediction, result.prediction),
        forwards=result.forwards * model.draws + trials,
        backwards=result.backwards * model.draws,
    )
