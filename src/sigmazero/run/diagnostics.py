"""Signs that results are doubtful: in the first gradients of a batch, and in second answers about points found.

They cost no queries. Numbers stay on the device until `findings` reads them.
"""

import torch
from torch import Tensor

from sigmazero.core.findings import LOOK_FOR, MANY, ROUNDING, STEADY, Finding, coded
from sigmazero.core.problem import Problem


class FirstLook:
    """Looks at the first gradients of a batch: where they are exactly zero, and what the model answered there.

    counts  the number of rows with a gradient of exactly zero, and of rows with a loss; None before the first look
    """

    def __init__(self) -> None:
        self.counts: Tensor | None = None
        self._seen: tuple[Tensor, Tensor, Tensor] | None = None  # ids, whether it is the clean input, logits

    def __call__(
        self, problem: Problem, point: Tensor, logits: Tensor, slope: Tensor, grad: Tensor, alive: Tensor
    ) -> None:
        """Look at the gradients of a loss with respect to logits and inputs; only the first call counts."""
        if self.counts is not None or (grad.is_cuda and torch.cuda.is_current_stream_capturing()):
            return
        sloped = alive & slope.flatten(1).any(1)  # rows with a loss
        self.counts = torch.stack([(sloped & ~grad.flatten(1).any(1)).sum(), sloped.sum()])
        self._seen = problem.ids, (point.detach() == problem.x).flatten(1).all(1), logits.detach().clone()

    def difference(self, ids: Tensor, clean: Tensor) -> Tensor | None:
        """Return how far answers to clean inputs were from earlier ones, in units of what rounding allows.

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


class Diagnostics:
    """The first looks of all batches of a session."""

    def __init__(self) -> None:
        self._counts: list[Tensor] = []
        self._differences: list[Tensor] = []
        self._returned: list[Tensor] = []

    def see_returned(self, changed: Tensor) -> None:
        """Keep which points of another library's attack differ from the inputs."""
        self._returned.append(changed)

    def see(self, look: FirstLook, ids: Tensor, clean: Tensor, strict: bool) -> None:
        """Keep what a batch showed; `clean` has the earlier answers about the clean inputs.

        A search that is not `strict` asks a copy, or in coarser numbers, and may well get another answer.
        """
        if look.counts is not None:
            self._counts.append(look.counts)
        if strict and (difference := look.difference(ids, clean)) is not None:
            self._differences.append(difference)

    def see_again(self, differences: list[Tensor], missed: list[Tensor], strict: bool) -> None:
        """Keep by how much fresh answers differed, in units of what is allowed.

        A point that reached the goal in a `strict` search and then misses it is such a difference too.
        """
        self._differences += differences + (missed if strict else [])
        differences.clear()
        missed.clear()

    def findings(self) -> tuple[Finding, ...]:
        """Return findings about random answers, zero gradients in many rows, and attacks that return their inputs."""
        found = []
        if self._differences and float(torch.stack(self._differences).max()) > 1:
            found.append(coded("SZ003", "The same inputs were answered differently within one run.", STEADY))
        zero, rows = torch.stack(self._counts).sum(0).tolist() if self._counts else (0, 0)
        if zero > MANY * rows:
            detail = f"{zero} of {rows} rows ({zero / rows:.0%}) had no gradient at all where the search began."
            found.append(coded("SZ004", detail, LOOK_FOR))
        changed = torch.cat(self._returned) if self._returned else torch.ones(0)
        if len(changed) > 1 and not bool(changed.any()):
            detail = f"All {len(changed)} inputs that it was given came back as they were."
            fix = "call the attack yourself on one input; check its budget, its steps and the range of the inputs"
            found.append(coded("SZ022", detail, fix, "warning"))
        return tuple(found)
