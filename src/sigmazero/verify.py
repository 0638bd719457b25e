"""Nothing is reported that a fresh forward pass has not confirmed and a recount has not counted."""

import torch
from torch import Tensor

from sigmazero.loop import Found
from sigmazero.oracle import Model, Tally
from sigmazero.problem import Problem, count_features, count_pixels
from sigmazero.result import Outcome, Result


def verify(model: Model, problem: Problem, found: Found, clean: Tensor) -> Result:
    """Ask afresh about every record, best first; a record that fails gives way to the one before it."""
    tally = found.tally
    best = _confirm(model, problem, tally.points, tally.counts, tally, clean)
    if found.own is None:
        return best
    own = found.own[:, None]
    # A point outside the box or untouched is no claim; the others are counted like any record.
    l0 = torch.where(problem.feasible(found.own), problem.l0(found.own), problem.sites + 1)
    claims = torch.where(l0 > 0, l0, problem.sites + 1)[:, None]
    claims = torch.where(tally.best_l0[:, None] == 0, 0, claims)
    report = _confirm(model, problem, own, claims, tally, clean)
    spent = best.forwards + (report.forwards - tally.forwards)
    object.__setattr__(best, "forwards", spent)
    object.__setattr__(report, "forwards", spent)
    object.__setattr__(best, "own", report)
    return best


def _confirm(model: Model, problem: Problem, points: Tensor, counts: Tensor, tally: Tally, clean: Tensor) -> Result:
    x_adv, logits = problem.x.clone(), clean.clone()
    forwards = tally.forwards.clone()
    already = tally.best_l0 == 0
    claimed = counts[:, 0] <= problem.sites
    confirmed = already.clone()
    for k in range(counts.shape[1]):
        rows = (claimed & ~confirmed & (counts[:, k] <= problem.sites)).nonzero().squeeze(1)
        if not len(rows):
            break
        part, candidates = problem.take(rows), points[rows, k]
        fresh = model(candidates)
        forwards[rows] += 1
        good = part.fooled(fresh) & fresh.isfinite().all(1) & part.feasible(candidates)
        rows = rows[good]
        x_adv[rows], logits[rows], confirmed[rows] = candidates[good], fresh[good].to(logits.dtype), True
    failed = torch.where(confirmed, 0.0, torch.inf)
    return Result(
        x_adv=x_adv,
        success=confirmed,
        l0=count_features(x_adv, problem.x) + failed,
        l0_pixel=count_pixels(x_adv, problem.x) + failed,
        step_found=torch.where(confirmed, tally.step_found, -1),
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
    outcome[claimed] = Outcome.UNVERIFIED
    outcome[confirmed] = Outcome.FOUND
    outcome[already] = Outcome.ALREADY
    return outcome
