r"""Elastic-net attack (Chen et al., AAAI 2018, https://arxiv.org/abs/1709.04114), as in foolbox, per sample.

Accelerated proximal gradient descent (FISTA) on c · margin + ‖δ‖₂², where the l1 norm enters through shrinkage, inside
a search over c: a round that finds an adversarial point lowers c, one that finds none raises it.

    u, v  iterate and its extrapolation (the paper's x, y); u stays inside the box, v need not
    k     step within the round, one per sample         c       weight of the margin, one per sample
    α     step size, 0.01 · √(1 − k / steps)            lo, hi  largest c that failed, smallest that succeeded
    β     shrinkage, the weight of the l1 norm          κ       margin asked for beyond the boundary

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 4.]))
>>> result = sz.get("ead", steps=100).run(model, torch.full((1, 4), 0.5), torch.tensor([0]))
>>> int(result.l0[0])  # moving the first feature alone would do, but the l2 norm spreads the change
2
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from sigmazero.core import ops
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Domain
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count, NotNegative, Positive


@dataclass
class State:
    """One row per sample; each is in its own round and at its own step of it."""

    u: Tensor
    v: Tensor
    k: Tensor
    round: Tensor
    c: Tensor
    lo: Tensor
    hi: Tensor
    hit: Tensor  # this round found an adversarial point
    previous: Tensor  # loss at the last progress check of this round
    score: Tensor  # of `own`, by the rule
    own: Tensor
    done: Tensor


@dataclass(frozen=True, kw_only=True)
class EAD(Attack):
    """Add the l1 norm of the changes to the loss (the elastic net) and search for the weight of the loss. The l1 norm
    makes changes sparse without counting them.

    The paper has two rules for which adversarial point to return. The default is "l1", the sparser one; the σ-zero
    paper measured "elastic-net". `own` follows the rule; the result itself is as always the sparsest point asked about.
    In pixel unit the l1 norm adds up the l2 norms of the pixels.
    """

    name: str = "ead"
    steps: Count = 1000
    rule: Annotated[Literal["l1", "elastic-net"], "the norm whose smallest point the method returns"] = "l1"
    binary_search_steps: Annotated[Count, "rounds of the search for the weight of the loss"] = 9
    initial_const: Annotated[Positive, "the first weight of the loss"] = 1e-3
    regularization: Annotated[NotNegative, "weight of the l1 norm"] = 0.01
    step_size: Annotated[Positive, "length of a step at first; it falls to 0"] = 0.01
    confidence: Annotated[NotNegative, "by how much the logits must be wrong"] = 0.0
    abort_early: Annotated[bool, "end a round that improves no more"] = True

    keeps_own: ClassVar[bool] = True
    spaces: ClassVar[bool] = False
    asks: ClassVar[str] = "3 queries a step, `binary_search_steps` times"
    paper: ClassVar[str] = "https://arxiv.org/abs/1709.04114"

    @property
    def iterations(self) -> int:
        """Return the steps of all rounds in full; a sample whose rounds end early is done before."""
        return self.binary_search_steps * self.steps

    def init(self, oracle: Oracle) -> State:
        """Start at the clean point. It stands in for `own`: foolbox returns a black image where it found nothing."""
        x = oracle.domain.x
        zero, count, no = (torch.zeros(len(x), dtype=d, device=x.device) for d in (x.dtype, torch.int64, torch.bool))
        inf = torch.full_like(zero, torch.inf)
        return State(x, x, count, count, zero + self.initial_const, zero, inf, no, inf, inf, x, no)

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Descend from v, shrink towards the clean point, extrapolate, check; then see whether the round is over."""
        d, goal, κ, k = oracle.domain, oracle.goal, self.confidence, s.k.to(s.c)
        answer = oracle.value_and_grad(s.v, goal.margin)
        δ, short = s.v - d.x, (answer.value + κ).relu()
        loss = s.c * short + δ.square().flatten(1).sum(1)
        g = ops.per_row(torch.where(short > 0, s.c, 0.0), δ) * answer.grad + 2 * δ
        α = self.step_size * (1 - k / self.steps).sqrt()
        u = self.shrink(s.v - ops.per_row(α, δ) * g, d)
        v = u + ops.per_row(k / (k + 3), u) * (u - s.u)
        # foolbox sums the loss over the batch; here each sample looks at its own. In a round that it aborts, foolbox
        # skips the forward pass below. Here the other rows need it, so it is made and counted for all.
        looking = (s.k % -(-self.steps // 10) == 0) & self.abort_early
        stuck = looking & ~(loss <= 0.9999 * s.previous)
        logits = oracle.logits(u)
        reached = goal.fooled(logits) & (goal.margin(logits) <= -κ) & ~stuck
        score = self.measure(u - d.x, d)
        better = reached & (score < s.score) & oracle.incumbents.alive
        hit = s.hit | reached
        over = stuck | (s.k + 1 == self.steps)
        lo, hi = torch.where(over & ~hit, s.c, s.lo), torch.where(over & hit, s.c, s.hi)
        started = s.round + over.long()
        return State(
            u=torch.where(ops.per_row(over, u), d.x, u),
            v=torch.where(ops.per_row(over, v), d.x, v),
            k=torch.where(over, 0, s.k + 1),
            round=started,
            c=torch.where(over, self.next_const(s.c, lo, hi, started), s.c),
            lo=lo,
            hi=hi,
            hit=hit & ~over,
            previous=torch.where(over, torch.inf, torch.where(looking, loss, s.previous)),
            score=torch.where(better, score, s.score),
            own=torch.where(ops.per_row(better, u), u, s.own),
            done=started >= self.binary_search_steps,
        )

    def shrink(self, v: Tensor, d: Domain) -> Tensor:
        """Move the change of each site towards 0 by β, itself and not α · β; then into the box."""
        size = d.site_norm(v - d.x)
        β = self.regularization
        return d.clip(torch.where(size > β, d.x + (v - d.x) * (1 - β / size), d.x))

    def measure(self, δ: Tensor, d: Domain) -> Tensor:
        """Return the number that the rule minimises."""
        l1 = d.site_norm(δ).flatten(1).sum(1)
        return l1 if self.rule == "l1" else self.regularization * l1 + δ.square().flatten(1).sum(1)

    def next_const(self, c: Tensor, lo: Tensor, hi: Tensor, started: Tensor) -> Tensor:
        """Multiply c by ten until a round succeeds, then bisect; the last of ten rounds or more repeats the best c."""
        c = torch.where(hi.isinf(), 10 * c, (lo + hi) / 2)
        last = (started == self.binary_search_steps - 1) & (self.binary_search_steps >= 10)
        return torch.where(last, hi.clamp(max=1e10), c)
