r"""Sparse-PGD (Zhong et al., ICML 2024, https://arxiv.org/abs/2405.05075): a magnitude and a mask, each with its own
gradient.

The perturbation is a magnitude at the k sites with the largest mask logits. Signed gradient steps move the
magnitude, normalised ones the logits, through which the gradient passes as if the mask were their sigmoid. A mask
that does not change any more is drawn anew. Points where the released code differs:

* its count of idle steps returns to 0 only when no sample of the batch was idle, so in a large batch it counts idle
  steps in total; here each sample has its own count, and patience_counts says whether consecutive or all steps count;
* it evaluates the starting point but never returns it; here an adversarial one ends the row like any other;
* without success it returns the point of largest loss, which is not adversarial: here that row failed;
* ε, 1 there, is the width of the box; sites without room to change are never chosen and not counted as sites.

    p    magnitude, one per feature              g_p    its gradient, of the loss to be lowered
    u    mask logits, one per site               g_u    theirs
    s    sigmoid(u)                              M      the k sites with the largest s
    k    sites that may change, per sample       idle   steps in which the k largest u stayed the same

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> result = sz.get("spgd-unprojected", steps=50).run(model, torch.full((1, 4), 0.5), torch.tensor([0]), budget=2)
>>> int(result.l0[0])
2
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from sigmazero.attacks import budget
from sigmazero.core import losses, noise, ops
from sigmazero.core.losses import LossName
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count, Positive


@dataclass(kw_only=True)
class State(budget.State):
    """One row per sample; p and g_p are (rows, features of a site, sites), u and g_u (rows, sites)."""

    p: Tensor
    u: Tensor
    g_p: Tensor
    g_u: Tensor
    idle: Tensor


@dataclass(frozen=True, kw_only=True)
class SparsePGD(budget.BudgetAttack):
    """Learn a mask of k sites and the values there, each by gradient steps, within a budget. A mask that stays the same
    for long is drawn anew.
    """

    name: str = "spgd-unprojected"
    steps: Count = 10_000
    gradient: Annotated[Literal["projected", "unprojected"], "move values at chosen sites, or at all"] = "unprojected"
    step_size: Annotated[Positive, "length of a step, in units of the box"] = 0.25
    mask_step_size: Annotated[Positive, "length of a step of the mask"] = 0.25
    patience: Annotated[Count, "steps without a new mask before it is drawn anew"] = 3
    patience_counts: Annotated[Literal["consecutive", "total"], "whether these steps must be consecutive"] = (
        "consecutive"
    )
    loss: LossName = "cross-entropy"

    asks: ClassVar[str] = "2 queries a step"
    paper: ClassVar[str] = "https://arxiv.org/abs/2405.05075"
    version: ClassVar[int] = 3

    @property
    def iterations(self) -> int:
        """Return one step more than `steps`: the starting point is evaluated too."""
        return self.steps + 1

    def begin(self, oracle: Oracle, k: Tensor) -> State:
        """Begin at the clean point; the first step draws magnitude and mask."""
        none = torch.zeros_like(oracle.domain.by_site(oracle.domain.x))
        return State(k=k, age=torch.zeros_like(k), p=none, u=none[:, 0], g_p=none, g_u=none[:, 0], idle=k * 0)

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Draw or move, evaluate, look whether the mask still moves."""
        d, problem = oracle.domain, oracle.problem
        x, lower, upper = d.box
        room = (lower < upper).any(1)
        fresh = s.age == 0
        redrawn = fresh | (s.idle >= self.patience)
        drawn = noise.normal(problem.seed, problem.ids, i, (d.sites,), stream=1, dtype=d.x.dtype)
        u = torch.where(redrawn[:, None], drawn, s.u)
        before = self.largest(u, room, s.k)
        length = s.g_u.norm(dim=1)
        β = self.mask_step_size * room.sum(1).to(u).sqrt() / (length + 1e-10)
        u = u - torch.where(length < 2e-10, 0, β)[:, None] * s.g_u
        start = d.by_site((2 * oracle.uniform(i) - 1) * (d.upper - d.lower))  # around the clean value; clipped below
        p = torch.where(fresh[:, None, None], start, s.p - self.step_size * (upper - lower) * s.g_p.sign())
        p = torch.minimum(torch.maximum(p, lower - x), upper - x)
        sigmoid = 1 / (1 + torch.exp(-u))  # torch's own rounds differently at the end of a vector on a CPU
        # The mask comes from the sigmoid, the idle test from the logits: they differ where the sigmoid saturates.
        M = self.largest(sigmoid, room, s.k)
        point = d.clip(torch.where(M[:, None], x + p, x).view_as(d.x))
        g = d.by_site(oracle.value_and_grad(point, losses.get(self.loss, oracle.goal)).grad)
        lowest = torch.where(before, u, torch.inf).amin(1)
        still = ~fresh & (lowest >= torch.where(before | ~room, -torch.inf, u).amax(1))  # the same k are the largest
        idle = torch.where(redrawn, 0, s.idle)
        count = idle if self.patience_counts == "total" else torch.zeros_like(idle)
        return replace(
            s,
            age=s.age + 1,
            p=p,
            u=u,
            g_p=g * (M if self.gradient == "projected" else sigmoid)[:, None],
            g_u=(g * p).sum(1) * sigmoid * (1 - sigmoid),
            idle=torch.where(still, idle + 1, count),
        )

    def largest(self, values: Tensor, room: Tensor, k: Tensor) -> Tensor:
        """Return the k sites with the largest values, of those with room to change."""
        return ops.keep_largest(torch.where(room, values, -torch.inf), k) & room
