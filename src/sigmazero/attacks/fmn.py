r"""Fast minimum-norm attack, l0 (Pintor et al., NeurIPS 2021, https://arxiv.org/abs/2102.12827), as in adv-lib.

Normalised gradient steps on the margin, each followed by a projection that keeps the ε largest changes; ε shrinks
where the point is adversarial and grows where it is not.

    a    current point, always inside the box      α    step size, annealed by a cosine
    δ    a − x, the perturbation                   γ    relative change of ε, annealed by a cosine
    ε    number of changes allowed, one per sample

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> result = sz.get("fmn", steps=50).run(model, torch.full((1, 4), 0.5), torch.tensor([0]))
>>> int(result.l0[0])
2
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from sigmazero.core import losses, ops
from sigmazero.core.attack import Attack
from sigmazero.core.losses import LossName
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count, Positive, Range


@dataclass
class State:
    """One row per sample; ε is a whole number kept in the dtype of the inputs."""

    a: Tensor
    ε: Tensor


@dataclass(frozen=True, kw_only=True)
class FMN(Attack):
    """Move along the gradient inside an l0 ball that shrinks while the sample is fooled and grows while it is not. It
    is fast, and was the usual choice before σ-zero.

    In pixel unit ε counts pixels, and those with the largest l2 change are kept. Both rates fall along a cosine.
    """

    name: str = "fmn"
    steps: Count = 1000
    step_size: Annotated[Positive, "length of a step, in units of the box"] = 1.0
    step_size_end: Annotated[Positive, "share of the step size that is left at the end"] = 0.01
    budget_rate: Annotated[float, Range(least=0, below=1), "share by which the ball shrinks and grows at first"] = 0.05
    budget_rate_end: Annotated[float, Range(least=0, most=1), "share of that rate that is left at the end"] = 0.02
    loss: LossName = "margin"  # not clipped at 0: the descent goes on past the boundary

    asks: ClassVar[str] = "2 queries a step"
    paper: ClassVar[str] = "https://arxiv.org/abs/2102.12827"
    version: ClassVar[int] = 3
    aliases: ClassVar[dict[str, str]] = {"α_init": "step_size", "γ_init": "budget_rate"}

    @cached_property
    def rates(self) -> Tensor:
        """Return α and γ of each step."""
        α = ops.cosine(self.steps, self.step_size, self.step_size_end * self.step_size)
        γ = ops.cosine(self.steps, self.budget_rate, self.budget_rate_end * self.budget_rate)
        return torch.stack([α, γ], 1)[: self.steps]

    def init(self, oracle: Oracle) -> State:
        """Start at the clean point with one change allowed."""
        x = oracle.domain.x
        return State(x, x.new_ones(len(x)))

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Evaluate, move ε, ascend, keep the ε largest changes."""
        d = oracle.domain
        α, γ = oracle.row(self.rates, i)
        answer = oracle.value_and_grad(s.a, losses.get(self.loss, oracle.goal))
        # The query above may have set the record: ε never exceeds what is known to suffice.
        shrunk = torch.minimum(torch.minimum(s.ε - 1, (s.ε * (1 - γ)).floor()), oracle.incumbents.best_l0.to(s.ε))
        grown = torch.maximum(s.ε + 1, (s.ε * (1 + γ)).floor())
        ε = torch.where(answer.fooled, shrunk, grown).clamp(0, d.sites)
        g = answer.grad
        length = g.flatten(1).norm(dim=1).clamp(min=1e-12)
        δ = s.a - d.x - α * g / ops.per_row(length, g)
        size = d.site_norm(δ)
        # adv-lib asks for the 0-th largest where ε = 0 and crashes if that holds for a whole batch: 1 is meant.
        threshold = ops.kth_largest(size, ε.clamp(min=1).long())
        δ = torch.where(size < ops.per_row(threshold, size), 0.0, δ)  # ties with the threshold survive
        return State(d.clip(d.x + δ), ε)
