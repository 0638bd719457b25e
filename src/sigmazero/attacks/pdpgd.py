r"""Primal-dual proximal gradient attack, l0 (Matyasko & Chau, 2021, https://arxiv.org/abs/2106.01538).

Adam steps on the margin, each followed by a proximal step in Adam's own metric that makes the perturbation sparse;
the weight between both is a dual variable that rises while the point is not adversarial and falls while it is.

    a     current point, always inside the box     w    weights of norm and margin, running mean of softmax(0, λ)
    r     a − x, the perturbation                  λ    dual variable, a logit, one per sample
    m, v  Adam's moments                           η    step size, decaying exponentially
    D     Adam's denominator, √v̂ + 1e-8            θ    step size of λ, decaying linearly
    H     D / max D                                μ    strength of the proximal step, w₀/w₁ · η / max D

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> result = sz.get("pdpgd", steps=200).run(model, torch.full((1, 4), 0.5), torch.tensor([0]))
>>> int(result.l0[0])
2
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from sigmazero.core import ops
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Domain
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count, Momentum, NotNegative, Positive, Share


@dataclass
class State:
    """One row per sample."""

    a: Tensor
    m: Tensor
    v: Tensor
    λ: Tensor
    w: Tensor


@dataclass(frozen=True, kw_only=True)
class PDPGD(Attack):
    """Treat the wish for few changes and the wish to fool as two players, and take primal and dual steps in turn. A
    proximal operator sets small changes to zero.

    The default is the authors' choice for l0: the l2/3 proximal operator, feature by feature, from a random start.
    Their second run at a hundredth of the step size is left out; the step size decays that far within the run, as in
    adv-lib. "l0-pixel" without a random start is adv-lib's default, which the σ-zero paper measured: it keeps or drops
    all channels of a position together even where features count. In pixel unit every operator does.
    """

    name: str = "pdpgd"
    steps: Count = 1000
    proximal: Annotated[Literal["l2/3", "l0", "l0-pixel"], "which operator sets small changes to zero"] = "l2/3"
    random_start: Annotated[NotNegative, "how far from the input a run begins, in units of the box; 0 at the input"] = (
        0.25
    )
    step_size: Annotated[Positive, "length of a step, in units of the box"] = 0.1
    step_size_end: Annotated[Positive, "share of the step size that is left at the end"] = 0.01
    dual_ratio: Annotated[Positive, "weight of the distance beside the loss at first"] = 0.01
    dual_ratio_min: Annotated[Share, "the least such weight"] = 1e-6
    dual_step_size: Annotated[NotNegative, "length of a dual step"] = 0.1
    dual_step_size_end: Annotated[NotNegative, "share of it that is left at the end"] = 0.1
    dual_momentum: Annotated[Momentum, "weight of the past in the dual variable"] = 0.9
    proximal_steps: Annotated[Count, "inner steps of the proximal operator at most"] = 5
    proximal_tolerance: Annotated[NotNegative, "change below which these inner steps end"] = 1e-2

    spaces: ClassVar[bool] = False
    asks: ClassVar[str] = "2 queries a step"
    paper: ClassVar[str] = "https://arxiv.org/abs/2106.01538"
    aliases: ClassVar[dict[str, str]] = {
        "random_init": "random_start",
        "primal_lr": "step_size",
        "primal_lr_decrease": "step_size_end",
        "dual_ratio_init": "dual_ratio",
        "dual_min_ratio": "dual_ratio_min",
        "dual_lr": "dual_step_size",
        "dual_lr_decrease": "dual_step_size_end",
        "dual_ema": "dual_momentum",
        "ε_threshold": "proximal_tolerance",
    }

    @cached_property
    def rates(self) -> Tensor:
        """Return η, θ and Adam's two corrections of each step."""
        i = torch.arange(self.steps, dtype=torch.float64, device="cpu")
        η = self.step_size * self.step_size_end ** (i / self.steps)
        left = 1 - i / max(self.steps - 1, 1)
        θ = self.dual_step_size * (left * (1 - self.dual_step_size_end) + self.dual_step_size_end)
        return torch.stack([η, θ, *ops.adam_corrections(self.steps)], 1)

    def init(self, oracle: Oracle) -> State:
        """Start at the clean point, or near it."""
        d = oracle.domain
        x = a = d.x
        if self.random_start:
            a = d.clip(x + self.random_start * (2 * oracle.uniform(0) - 1))
        λ = x.new_full((len(x),), -math.log(self.dual_ratio))
        return State(a, torch.zeros_like(x), torch.zeros_like(x), λ, self.weights(λ))

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Evaluate, descend, make sparse, move the dual variable."""
        d = oracle.domain
        η, θ, c1, c2 = oracle.row(self.rates, i)
        answer = oracle.value_and_grad(s.a, oracle.goal.margin)
        # The loss is softplus(margin), whose derivative is this softmax. Torch's own softplus rounds differently at
        # the end of a vector on a CPU, so that a sample's result would depend on its place in the batch.
        g = answer.grad * ops.per_row(self.weights(answer.value)[:, 1], answer.grad)
        direction, m, v = ops.adam(g, s.m, s.v, c1, c2)
        D = v.sqrt() / c2 + 1e-8
        ψ = ops.per_row(ops.largest(D), D)
        μ = ops.per_row(s.w[:, 0] / s.w[:, 1], D) * η / ψ
        r = d.clip(s.a - η * direction) - d.x
        a = self.sparser(r, D / ψ, μ, d)
        λ_max = -math.log(self.dual_ratio_min)
        λ = (s.λ + θ * answer.value.sign()).clamp(-λ_max, λ_max)
        return State(a, m, v, λ, torch.lerp(self.weights(λ), s.w, self.dual_momentum))

    def sparser(self, r: Tensor, H: Tensor, μ: Tensor, d: Domain) -> Tensor:
        """Take the proximal step in the metric H, by an inner iteration that a sample leaves when it stands still."""
        z = r
        moving = torch.ones(len(d), dtype=torch.bool, device=r.device)
        for _ in range(self.proximal_steps):
            new = d.clip(d.x + self.prox(z - H * (z - r), μ, d)) - d.x
            change, length = ((t.flatten(1).norm(dim=1)) for t in (new - z, new))
            z = torch.where(ops.per_row(moving, z), new, z)  # the update that ends the iteration is still taken
            # Multiplied out, so that 0/0 counts as standing still.
            moving = moving & (change > self.proximal_tolerance * length)
        return d.clip(d.x + z)

    def prox(self, u: Tensor, μ: Tensor, d: Domain) -> Tensor:
        """Apply the proximal operator to the size of the change at each site."""
        size = d.site_norm(u)
        if self.proximal == "l2/3":
            return torch.where(size > 0, u * (ops.prox_l23(size, μ) / size), 0.0)
        if self.proximal == "l0-pixel" and u.ndim > 2:
            size = u.abs().amax(1, keepdim=True)
        return torch.where(size >= (2 * μ).sqrt(), u, 0.0)

    @staticmethod
    def weights(λ: Tensor) -> Tensor:
        """Return the weights of the norm and of the margin."""
        return torch.stack([torch.zeros_like(λ), λ], 1).softmax(1)
