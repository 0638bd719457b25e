r"""PGD-l0 (Croce & Hein, ICCV 2019, https://arxiv.org/abs/1909.05040): projected gradient descent with k changes.

Long steps along the l1-normalised gradient of the cross-entropy, each followed by a projection onto the box and the
k sites that gain most. Points where the code that the σ-zero paper ran differs:

* it evaluates N − 1 points when asked for N steps; here every step evaluates one;
* it never stops early and returns the latest adversarial point (`own`); here a row leaves once within its budget;
* it keeps all sites that tie for the k-th place, here exactly k stay, the lower index first;
* it divides by the l1 norm of the gradient of the batch's mean loss, here of the sample's own: they differ by 1e-10;
* step and noise are in units of the box, which is [0, 1] there.

    δ    perturbation, before the projection      k     sites that may change, one number per sample
    a    the point x + projected δ                g     gradient of the loss, of unit l1 norm
    u    random numbers in [0, 1): the start of a restart, otherwise a noise of 1e-12 that breaks ties

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> result = sz.get("pgd-l0", steps=20).run(model, torch.full((1, 4), 0.5), torch.tensor([0]), budget=2)
>>> int(result.l0[0])
2
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from sigmazero.attacks import budget
from sigmazero.core import losses, ops
from sigmazero.core.domain import Domain
from sigmazero.core.losses import LossName
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count, Positive


@dataclass(kw_only=True)
class State(budget.State):
    """One row per sample; `own` is the latest adversarial point."""

    δ: Tensor
    own: Tensor


@dataclass(frozen=True, kw_only=True)
class PGDL0(budget.BudgetAttack):
    """Take gradient steps within a budget: after each, undo all but the k largest changes. Begin again at random
    points.

    group="pixel" lets k pixels change with all their channels even where the run counts features: so the σ-zero paper
    ran it, which discards part of its successes on colour images.
    """

    name: str = "pgd-l0"
    steps: Count = 100
    restarts: Annotated[Count, "how often it begins anew"] = 5
    step_size: Annotated[Positive, "length of a step, in units of the box"] = 120000 / 255
    loss: LossName = "cross-entropy"
    group: Annotated[Literal["unit", "pixel"], "what the budget counts: as the run does, or pixels"] = "unit"

    asks: ClassVar[str] = "2 queries a step, `restarts` times"
    paper: ClassVar[str] = "https://arxiv.org/abs/1909.05040"
    version: ClassVar[int] = 3
    keeps_own: ClassVar[bool] = True

    @property
    def iterations(self) -> int:
        """Return the steps of all restarts, one after another."""
        return self.restarts * self.steps

    def begin(self, oracle: Oracle, k: Tensor) -> State:
        """Begin at the clean point; the first step draws the start."""
        x = oracle.domain.x
        return State(k=k, age=torch.zeros_like(k), δ=torch.zeros_like(x), own=x)

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Start or perturb, project, evaluate, move."""
        d = oracle.domain
        u = oracle.uniform(i)
        width = d.upper - d.lower
        fresh = ops.per_row(s.age % self.steps == 0, u)
        δ = torch.where(fresh, d.lower + u * width - d.x, s.δ + 1e-12 * width * (u - 0.5))
        a = self.project(δ, s.k, d)
        answer = oracle.value_and_grad(a, losses.get(self.loss, oracle.goal))
        g = answer.grad / ops.per_row(1e-10 + answer.grad.abs().flatten(1).sum(1), u)
        own = torch.where(ops.per_row(answer.fooled & oracle.incumbents.alive, a), a, s.own)
        return replace(s, age=s.age + 1, δ=a - d.x - self.step_size * width * g, own=own)

    def project(self, δ: Tensor, k: Tensor, d: Domain) -> Tensor:
        """Return the point of the box nearest to x + δ that changes at most k sites."""
        clipped = d.clip(d.x + δ)
        c = clipped - d.x
        gain = c * (2 * δ - c)  # δ² − (δ − c)², without its cancellation: what it saves to change this feature
        gain = gain.sum(1, keepdim=True) if self.group == "pixel" and δ.ndim > 2 else d.site_sum(gain)
        largest = ops.keep_largest(gain.flatten(1), k).view(gain.shape)
        return torch.where(largest, clipped, d.x)
