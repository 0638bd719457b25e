"""The rows of a run that the model stopped answering for: nothing is known of them, and they say so."""

import torch

from sigmazero.core.problem import Problem
from sigmazero.core.result import Outcome, Result


@torch.inference_mode(False)
def unanswered(problem: Problem, keeps_own: bool) -> Result:
    """A result without an answer for each row; what was asked about a row before is counted by the model alone."""
    n, device = len(problem), problem.x.device
    nothing = torch.full((n,), -1, dtype=torch.int64, device=device)
    never = torch.full((n,), torch.inf, dtype=torch.float32, device=device)
    judged = problem.domain.accept is not None
    result = Result(
        x_adv=problem.x.clone(),
        success=torch.zeros(n, dtype=torch.bool, device=device),
        l0=never,
        l0_pixel=never.clone(),
        step_found=nothing,
        forwards=torch.zeros_like(nothing),
        backwards=torch.zeros_like(nothing),
        outcome=torch.full((n,), int(Outcome.STOPPED), dtype=torch.int8, device=device),
        margin=torch.full((n,), torch.nan, dtype=problem.x.dtype, device=device),
        prediction=nothing.clone(),
        clean_prediction=nothing.clone(),
        ids=problem.ids,
        judged=torch.zeros_like(nothing) if judged else None,
        unit=problem.unit,
        budget=problem.budget,
    )
    return Result(**vars(result) | {"own": result}) if keeps_own else result
