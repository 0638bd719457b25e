"""Verification: fresh answers about everything that a search claims, and a recount of the changes.

A point must hold twice: in strict fp32 and in the float32 settings of the caller's process. Where both are the same,
one answer is both. A point found without gradients is asked about once more, in another order and in smaller batches: a
model may answer at random, or by the place in the batch, and no gradient shows that in passing.
"""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sigmazero.core.findings import ROUNDING
from sigmazero.core.incumbents import Incumbents
from sigmazero.core.model import ask
from sigmazero.core.oracle import Model, widened
from sigmazero.core.problem import Problem
from sigmazero.core.result import Outcome, Result
from sigmazero.run.precision import Numbers
from sigmazero.run.search_model import is_compiled, uncompiled

# How many times the difference of its two answers a point must hold by in both: kernels differ from one batch size to
# the next, and a success must survive being asked again at another one.
GUARD = 2.0
# By which share of the largest logit two answers to one point may differ: a model may compute in bf16 inside, which
# rounds otherwise in another batch.
COARSE = 2.0**-6


class Verifier:
    """Asks the model itself, in strict fp32 and in the caller's settings; these queries are counted too.

    Of a compiled model, the model inside it is asked in strict fp32. `rows` are those of a batch.
    """

    def __init__(self, model: Model, caller: Numbers, rows: int = 0) -> None:
        self.model, self.caller, self.rows = model, caller, rows
        self.strict = Numbers.strict(caller.device)
        self._uncompiled = uncompiled(model)
        self.checks = 2 if is_compiled(model) or not caller.strictly else 1
        self._digit = 0.0  # the last digit of the coarsest number format of an answer so far
        self.differences: list[Tensor] = []  # by how much second answers differed, in what is allowed
        self.missed: list[Tensor] = []  # by how much records missed the goal, in the same

    def ask(self, x: Tensor, pad: bool = False) -> list[Tensor]:
        """Return logits in strict fp32 and, where they may differ, in the caller's settings.

        On a device `pad` rounds the number of rows up to a quarter, a half or all of a batch. For a new number of
        rows its library looks for kernels, which takes longer than the answer. For few rows the library may choose
        kernels that round less; then the two answers would seem closer than they are in the end.
        """
        answers = [self._ask(self._uncompiled, self.strict, x, pad)]
        if self.checks > 1:
            answers.append(self._ask(self.model, self.caller, x, pad))
        kinds = [logits.dtype for logits in answers if isinstance(logits, Tensor) and logits.is_floating_point()]
        self._digit = max([self._digit, *(torch.finfo(kind).eps for kind in kinds)])
        return answers

    def disagreement(self, answers: Tensor) -> Tensor:
        """Return how far another kernel might be from the answers about each sample (N, formats, classes).

        That is as far as they are from each other, and the last digit of the coarser format: a logit in bf16 is known
        to three digits, and may be off by one. A single answer is taken at its word.
        """
        if answers.shape[1] == 1:
            return answers.new_zeros(len(answers))
        exact = answers.double()
        spread, largest = (exact.amax(1) - exact.amin(1)).amax(1), exact.abs().flatten(1).amax(1)
        return (spread + self._digit * largest).to(answers.dtype)

    def _ask(self, model: Model, numbers: Numbers, x: Tensor, pad: bool) -> Tensor:
        """Ask a model in some settings; the answer is a copy, as some models return the same memory again."""
        more = self._rounded(len(x)) - len(x) if pad and x.is_cuda else 0
        points = torch.cat([x, x[:1].expand(more, *x.shape[1:])]) if more else x
        with numbers.applied():
            return ask(model, points)[: len(x) if more else None].clone()

    def _rounded(self, count: int) -> int:
        """Return a quarter, a half or all of a batch, whichever holds the rows first."""
        return next((rows for rows in (self.rows // 4, self.rows // 2) if rows >= count), max(self.rows, count))

    def confirm(self, problem: Problem, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return which user points are legal and reach the goal in every answer, and their logits in strict fp32."""
        answers = self.ask(points, pad=True)
        good = points.isfinite().flatten(1).all(1) & problem.domain.legal(points)  # a box may have no ends
        logits = torch.stack([widened(each, problem.x) for each in answers], 1)
        by = GUARD * self.disagreement(logits)
        for each in logits.unbind(1):
            good = good & each.isfinite().all(1) & problem.goal.reached(each, by)
        return good, logits[:, 0]

    def holds_again(self, problem: Problem, points: Tensor, first: Tensor) -> Tensor:
        """Ask about user points once more, the last one first and in two halves; return which reach the goal again.

        `first` has the answers in strict fp32 before. Their difference is a diagnostic: rounding may lose a
        success, but not by more than that.
        """
        halves = [self._ask(self._uncompiled, self.strict, part, pad=True) for part in points.flip(0).chunk(2)]
        second = widened(torch.cat(halves).flip(0), problem.x)
        good = second.isfinite().all(1) & problem.goal.reached(second)
        digit = max(torch.finfo(kind).eps for kind in (halves[0].dtype, torch.float32))
        allowed = torch.where(good, COARSE, ROUNDING * digit)
        share = (second - first).abs().amax(1) / first.abs().amax(1).clamp_min(1.0)
        self.differences.append((share.double() / allowed).nan_to_num(math.inf).max())
        return good

    def report(
        self, problem: Problem, incumbents: Incumbents, clean: Tensor, *, again: float = 0, settled: bool = False
    ) -> Result:
        """Ask afresh about every record, best first; a record that fails gives way to the one behind it.

        A record that holds is asked about once more, as long as its sample has asked fewer than `again` times. Of
        samples that are `settled` the clean check, which was a fresh forward pass, has decided: nothing is asked again.
        """
        best = self._report(problem, incumbents, clean, again=again, settled=settled)
        if incumbents.own is None or settled:
            return best if incumbents.own is None else replace(best, own=best)
        domain, own_points = problem.domain, incumbents.own
        claims = torch.where(domain.within(own_points), domain.count(own_points).sites, domain.sites + 1)
        # A point without changes is no answer, unless the clean input was one.
        claims = torch.where((claims == 0) & (incumbents.best_l0 > 0), problem.sites + 1, claims)[:, None]
        unknown = torch.full_like(claims, -1)  # the step that found it
        mine = replace(
            incumbents, points=own_points[:, None], counts=claims, step_found=unknown, forwards=best.forwards
        )
        own = self._report(problem, mine, clean, again=again, records=False)
        spent: dict[str, Any] = {"forwards": own.forwards}
        if best.judged is not None and own.judged is not None:
            spent["judged"] = best.judged + own.judged
        return replace(best, **spent, own=replace(own, **spent))

    def _report(
        self,
        problem: Problem,
        incumbents: Incumbents,
        clean: Tensor,
        *,
        again: float,
        settled: bool = False,
        records: bool = True,
    ) -> Result:
        """Check the points and make the report; those that are not `records` need not have reached the goal before."""
        points, claims = incumbents.points, incumbents.counts
        x_adv, logits = problem.x.clone(), clean.clone()
        forwards, given_up = incumbents.forwards.clone(), torch.zeros_like(incumbents.forwards)
        accept = problem.domain.accept
        judged = torch.zeros_like(given_up)
        confirmed = (claims[:, 0] == 0) & settled
        steps = torch.where(confirmed, 0, -1)
        for k in range(claims.shape[1]):
            rows = (~confirmed & (claims[:, k] <= problem.sites)).nonzero().squeeze(1)
            if not len(rows):
                break
            good, fresh = self.confirm(problem.take(rows), points[rows, k])
            if records:
                margin = problem.goal.take(rows).margin(fresh) / fresh.abs().amax(1).clamp_min(1.0)
                self.missed.append((margin.double() / COARSE).nan_to_num(0.0).max())
            if accept is not None:
                good = good & accept(points[rows, k], problem.x[rows])
                judged[rows] += 1
            forwards[rows] += self.checks
            twice = (good & (forwards[rows] + incumbents.backwards[rows] < again)).nonzero().squeeze(1)
            if len(twice):
                part = rows[twice]
                good[twice] = self.holds_again(problem.take(part), points[part, k], fresh[twice])
                forwards[part] += 1
            given_up[rows[~good]] += 1
            places = rows[good]
            x_adv[places], logits[places], confirmed[places] = points[places, k], fresh[good].to(logits.dtype), True
            steps[places] = incumbents.step_found[places, k]
        # In float32, whatever torch's default is: half of that would not hold the counts.
        failed = torch.zeros_like(confirmed, dtype=torch.float32).masked_fill(~confirmed, torch.inf)
        already = confirmed & (x_adv == problem.x).flatten(1).all(1)
        counts = problem.domain.count(x_adv)
        success = confirmed & problem.within_budget(counts.l0_pixel if problem.unit == "pixel" else counts.l0)
        return Result(
            x_adv=x_adv,
            success=success,
            l0=counts.l0 + failed,
            l0_pixel=counts.l0_pixel + failed,
            step_found=steps,
            forwards=forwards,
            backwards=incumbents.backwards,
            outcome=_outcomes(incumbents, given_up, confirmed, success, already),
            margin=problem.goal.margin(logits),
            prediction=logits.argmax(1),
            clean_prediction=torch.where(clean.isfinite().all(1), clean.argmax(1), -1),
            ids=problem.ids,
            given_up=given_up,
            cost=counts.cost.float() + failed,
            judged=None if accept is None else judged,
            unit=problem.unit,
            budget=problem.budget,
        )


def _outcomes(incumbents: Incumbents, given_up: Tensor, confirmed: Tensor, success: Tensor, already: Tensor) -> Tensor:
    outcome = torch.full_like(incumbents.forwards, Outcome.NOT_FOUND, dtype=torch.int8)
    outcome[incumbents.unstarted] = Outcome.NO_START
    outcome[incumbents.broken] = Outcome.NON_FINITE
    outcome[given_up > 0] = Outcome.UNVERIFIED
    outcome[confirmed] = Outcome.BEYOND_BUDGET
    outcome[success] = Outcome.FOUND
    outcome[already] = Outcome.ALREADY
    return outcome


def check_logits(logits: Tensor, problem: Problem) -> Tensor:
    """Return the logits of clean inputs; refuse what are none, and labels that do not fit them."""
    n = len(problem)
    if not isinstance(logits, Tensor):
        raise TypeError(f"the model returned a {type(logits).__name__}, not a tensor of logits")
    if logits.ndim != 2 or len(logits) != n or logits.shape[1] < 2:
        one = logits.shape in ((n,), (n, 1))
        seen = f"; values go from {float(logits.min()):.4g} to {float(logits.max()):.4g}" if one and n else ""
        fix = f"{seen}; of one number per row sz.wrap(model, gives='scores') or gives='probabilities' makes two classes"
        raise ValueError(
            f"the model returned shape {tuple(logits.shape)} for {n} inputs; expected ({n}, classes), "
            f"2 classes or more{fix if one else ''}"
        )
    if not logits.dtype.is_floating_point:
        raise TypeError(f"the model returned dtype {logits.dtype}; logits must be floating point")
    top = int(problem.y.max()) if n else 0
    if top >= logits.shape[1]:
        classes, sample = logits.shape[1], int(problem.ids[problem.y.argmax()])
        raise ValueError(f"label {top} (id {sample}) does not exist: the model knows classes 0 to {classes - 1}")
    return widened(logits, problem.x)
