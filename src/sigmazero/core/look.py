"""What the first gradients of a batch show in passing: they cost no question, and may say that a result is doubtful.

Numbers stay on the device until somebody reads them.
"""

import torch
from torch import Tensor

from sigmazero.core.problem import Problem

ROUNDING = 1e3  # units of the last place, of the largest logit, by which two answers to one input may differ


class FirstLook:
    """Of the first gradients that are asked for: where there are none at all, and what the model said there.

    counts  in how many rows the gradient was exactly zero, and of how many rows that had a loss; None before
    """

    def __init__(self) -> None:
        self.counts: Tensor | None = None
        self._seen: tuple[Tensor, Tensor, Tensor] | None = None  # ids, whether it is the clean input, logits

    def note(self, problem: Problem, point: Tensor, logits: Tensor, slope: Tensor, grad: Tensor, alive: Tensor) -> None:
        """Look at the gradients of a loss with respect to logits and inputs; only the first call counts."""
        if torch.compiler.is_compiling() or (grad.is_cuda and torch.cuda.is_current_stream_capturing()):
            return
        if self.counts is not None:
            return
        asked = alive & slope.flatten(1).any(1)
        self.counts = torch.stack([(asked & ~grad.flatten(1).any(1)).sum(), asked.sum()])
        self._seen = problem.ids, (point.detach() == problem.x).flatten(1).all(1), logits.detach().clone()

    def apart(self, ids: Tensor, clean: Tensor) -> Tensor | None:
        """How far answers to clean inputs were from those of an earlier call, in what rounding allows.

        Rows at other points are left out; None where the gradients were those of some of the rows.
        """
        if self._seen is None or len(self._seen[0]) < len(ids):
            return None
        own, same, answers = (each[: len(ids)] for each in self._seen)
        eps, answers = torch.finfo(answers.dtype).eps, answers.to(clean)
        use = same & (own == ids) & answers.isfinite().all(1) & clean.isfinite().all(1)
        gap = ((answers - clean).abs().amax(1) * use).nan_to_num(0.0).max()
        scale = (clean.abs().amax(1) * use).nan_to_num(0.0).max().clamp_min(1.0)
        return (gap / scale).double() / (ROUNDING * eps)
