"""Nothing is reported that a fresh forward pass in full precision has not confirmed and a recount has not counted."""

from dataclasses import replace

import torch
from torch import Tensor

from sigmazero.core.oracle import Model, widened
from sigmazero.core.problem import Problem, count_features, count_pixels
from sigmazero.core.result import Outcome, Result
from sigmazero.core.tally import Tally
from sigmazero.run.precision import full_precision
from sigmazero.run.search import Found


class Verifier:
    """Asks the model in full precision; these questions are counted too."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def ask(self, x: Tensor) -> Tensor:
        """Logits, whatever number format the search around it uses."""
        with full_precision():
            return self.model(x)

    def confirm(self, problem: Problem, points: Tensor) -> tuple[Tensor, Tensor]:
        """Which points reach the goal inside the box, and their logits."""
        logits = self.ask(problem.outward(points))
        finite = logits.isfinite().all(1) & points.isfinite().flatten(1).all(1)  # a box may have no ends
        return problem.fooled(logits) & finite & problem.feasible(points), logits

    def recheck(self, problem: Problem, tally: Tally) -> None:
        """Confirm new records of a coarse search, in place: rows go on from their best confirmed point."""
        assert tally.sure is not None
        assert tally.sure_l0 is not None
        assert tally.sure_step is not None
        assert tally.refuted is not None
        nothing, depth = problem.sites + 1, tally.counts.shape[1]
        for k in range(depth):
            rows = ((tally.counts[:, k] < tally.sure_l0) & (tally.counts[:, k] < nothing)).nonzero().squeeze(1)
            if not len(rows):
                break
            good, _ = self.confirm(problem.take(rows), tally.points[rows, k])
            tally.forwards[rows] += 1
            tally.sure[rows[good]] = tally.points[rows[good], k]
            tally.sure_l0[rows[good]] = tally.counts[rows[good], k]
            tally.sure_step[rows[good]] = tally.step_found[rows[good], k]
        refuted = tally.best_l0 < tally.sure_l0
        tally.points[:, 0] = tally.sure
        tally.counts[:, 0] = tally.sure_l0
        tally.step_found[:, 0] = tally.sure_step
        tally.counts[:, 1:] = nothing
        # A row may have stopped because of the record it lost; if it stopped for another reason, it stops again.
        tally.alive |= refuted
        tally.refuted |= refuted

    def settle(self, problem: Problem, found: Found, clean: Tensor) -> Result:
        """What the clean check, which was a fresh forward pass, has decided: nothing is asked again."""
        settled = found.tally.best_l0 == 0
        best = self._report(problem, found.tally.points, found.tally.counts, found.tally, clean, settled)
        return best if found.own is None else replace(best, own=best)

    def report(self, problem: Problem, found: Found, clean: Tensor) -> Result:
        """Ask afresh about every record, best first; a record that fails gives way to the one before it."""
        tally = found.tally
        nobody = torch.zeros_like(tally.broken)
        best = self._report(problem, tally.points, tally.counts, tally, clean, nobody)
        if found.own is None:
            return best
        claims = torch.where(problem.feasible(found.own), problem.l0(found.own), problem.sites + 1)
        # A point without changes is no answer, unless the clean input was one.
        claims = torch.where((claims == 0) & (tally.best_l0 > 0), problem.sites + 1, claims)
        own = self._report(problem, found.own[:, None], claims[:, None], tally, clean, nobody)
        spent = best.forwards + own.forwards - tally.forwards
        return replace(best, forwards=spent, own=replace(own, forwards=spent))

    def _report(
        self, problem: Problem, points: Tensor, counts: Tensor, tally: Tally, clean: Tensor, settled: Tensor
    ) -> Result:
        x_adv, logits = problem.x.clone(), clean.clone()
        forwards, steps = tally.forwards.clone(), torch.full_like(tally.forwards, -1)
        steps[settled] = 0
        claimed = counts[:, 0] <= problem.sites
        confirmed = settled.clone()
        for k in range(counts.shape[1]):
            rows = (claimed & ~confirmed & (counts[:, k] <= problem.sites)).nonzero().squeeze(1)
            if not len(rows):
                break
            good, fresh = self.confirm(problem.take(rows), points[rows, k])
            forwards[rows] += 1
            sure = rows[good]
            x_adv[sure], logits[sure], confirmed[sure] = points[sure, k], fresh[good].to(logits.dtype), True
            if points is tally.points:  # when an attack's own answer was asked about is not known
                steps[sure] = tally.step_found[sure, k]
        # In float32, whatever torch's default is: half of that would not hold the counts.
        failed = torch.zeros_like(confirmed, dtype=torch.float32).masked_fill(~confirmed, torch.inf)
        already = confirmed & (count_features(x_adv, problem.x) == 0)
        return Result(
            x_adv=x_adv,
            success=confirmed,
            l0=count_features(x_adv, problem.x) + failed,
            l0_pixel=count_pixels(x_adv, problem.x) + failed,
            step_found=steps,
            forwards=forwards,
            backwards=tally.backwards,
            outcome=_outcomes(tally, claimed, confirmed, already),
            margin=problem.margin(logits),
            prediction=logits.argmax(1),
            clean_prediction=torch.where(clean.isfinite().all(1), clean.argmax(1), -1),
            ids=problem.ids,
            unit=problem.unit,
            budget=problem.budget,
        )


def _outcomes(tally: Tally, claimed: Tensor, confirmed: Tensor, already: Tensor) -> Tensor:
    outcome = torch.full_like(tally.forwards, Outcome.NOT_FOUND, dtype=torch.int8)
    outcome[tally.unstarted] = Outcome.NO_START
    outcome[tally.broken] = Outcome.NON_FINITE
    if tally.refuted is not None:
        outcome[tally.refuted] = Outcome.UNVERIFIED
    outcome[claimed] = Outcome.UNVERIFIED
    outcome[confirmed] = Outcome.FOUND
    outcome[already] = Outcome.ALREADY
    return outcome


def check_logits(logits: Tensor, problem: Problem) -> Tensor:
    """The logits of clean inputs, if they are logits and the labels fit them."""
    n = len(problem)
    if not isinstance(logits, Tensor):
        raise TypeError(f"the model returned a {type(logits).__name__}, not a tensor of logits")
    if logits.ndim != 2 or len(logits) != n or logits.shape[1] < 2:
        raise ValueError(
            f"the model returned shape {tuple(logits.shape)} for {n} inputs; expected ({n}, classes), 2 classes or more"
        )
    if not logits.dtype.is_floating_point:
        raise TypeError(f"the model returned dtype {logits.dtype}; logits must be floating point")
    top = int(problem.y.max())
    if top >= logits.shape[1]:
        classes, sample = logits.shape[1], int(problem.ids[problem.y.argmax()])
        raise ValueError(f"label {top} (id {sample}) does not exist: the model knows classes 0 to {classes - 1}")
    return widened(logits, problem.x)
