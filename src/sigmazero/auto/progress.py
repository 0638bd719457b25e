"""What a cascade knows so far: tables with one row per member and one column per sample, and the best point of each."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sigmazero.core.problem import Problem
from sigmazero.core.result import Outcome, Result

UNKNOWN = -2  # a prediction nobody has asked for; −1 is one that is not finite


@dataclass
class CascadeState:
    """Everything that a report is made from; `l0` and `cost` are infinite where a member found nothing that counts.

    Of two points of a sample the one with the lower cost is kept: its number of changes, unless a space has costs.
    """

    x_adv: Tensor
    done: Tensor
    l0: Tensor
    cost: Tensor
    forwards: Tensor
    backwards: Tensor
    seconds: Tensor
    clean_prediction: Tensor
    prediction: Tensor
    margin: Tensor
    step_found: Tensor

    @staticmethod
    def start(x: Tensor, members: int) -> "CascadeState":
        """Nothing is known."""
        table, n = (members, len(x)), len(x)
        return CascadeState(
            x_adv=x.clone(),
            done=torch.zeros(table, dtype=torch.bool, device="cpu"),
            l0=torch.full(table, torch.inf, dtype=torch.float64, device="cpu"),
            cost=torch.full(table, torch.inf, dtype=torch.float64, device="cpu"),
            forwards=torch.zeros(table, dtype=torch.int64, device="cpu"),
            backwards=torch.zeros(table, dtype=torch.int64, device="cpu"),
            seconds=torch.zeros(members, dtype=torch.float64, device="cpu"),
            clean_prediction=torch.full((n,), UNKNOWN, device="cpu"),
            prediction=torch.full((n,), UNKNOWN, device="cpu"),
            margin=torch.full((n,), torch.nan, dtype=torch.float64, device="cpu"),
            step_found=torch.full((n,), -1, device="cpu"),
        )

    def best(self, members: int | None = None) -> Tensor:
        """The least cost per sample that the first so many members found, all of them if None."""
        return fewest(self.cost[:members])

    def asking(self, member: int, eps: int | None, least: float) -> Tensor:
        """Samples that a member has still to attack.

        Those before it did not get to `eps` changes or, without a number, to the `least` that any change costs.
        """
        so_far = self.best(member) > least if eps is None else fewest(self.l0[:member]) > eps
        left = so_far & (self.clean_prediction != -1)
        return (left & ~self.done[member]).nonzero().squeeze(1)

    def note(self, member: int, rows: Tensor, result: Result) -> None:
        """Take over what a member found for some samples, where it costs the least so far."""
        counts, cost = result.changes.double().cpu(), result.cost.double().cpu()
        good = result.success.cpu()
        counts, cost = torch.where(good, counts, torch.inf), torch.where(good, cost, torch.inf)
        better = cost < self.best()[rows]
        self.done[member, rows], self.l0[member, rows], self.cost[member, rows] = True, counts, cost
        self.forwards[member, rows], self.backwards[member, rows] = result.forwards.cpu(), result.backwards.cpu()
        self.seconds[member] += result.seconds
        self.clean_prediction[rows] = result.clean_prediction.cpu()
        won, mine = rows[better], result.take(better.to(result.success.device))
        self.x_adv[won.to(self.x_adv.device)] = mine.x_adv.to(self.x_adv)
        for name in ("prediction", "margin", "step_found"):
            column: Tensor = getattr(self, name)
            column[won] = getattr(mine, name).to(column)

    def result(self, problem: Problem) -> Result:
        """As from a single attack, every change counted again; the margin is NaN where nothing was found."""
        best = self.best()
        success, counts = best < torch.inf, problem.domain.count(self.x_adv)
        failed = torch.where(success, 0.0, torch.inf)
        cost = counts.cost.float().cpu() + failed
        outcome = torch.where(success, int(Outcome.FOUND), int(Outcome.NOT_FOUND)).to(torch.int8)
        outcome[best == 0] = Outcome.ALREADY
        outcome[self.clean_prediction == -1] = Outcome.NON_FINITE
        return Result(
            x_adv=self.x_adv,
            success=success,
            l0=counts.l0.cpu() + failed,
            l0_pixel=counts.l0_pixel.cpu() + failed,
            step_found=self.step_found,
            forwards=self.forwards.sum(0),
            backwards=self.backwards.sum(0),
            outcome=outcome,
            margin=self.margin,
            prediction=torch.where(success, self.prediction, self.clean_prediction),
            clean_prediction=self.clean_prediction,
            ids=problem.ids.cpu(),
            cost=cost,
            unit=problem.unit,
            budget=problem.budget,
            seconds=float(self.seconds.sum()),
        )


def fewest(l0: Tensor) -> Tensor:
    """The smallest count per sample over the members of a table; infinite if it has none."""
    return l0.amin(0) if len(l0) else l0.new_full(l0.shape[1:], torch.inf)
