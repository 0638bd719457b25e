r"""σ-zero (Cinà et al., ICLR 2025, https://arxiv.org/abs/2402.01879), as its authors released it.

Gradient descent on the margin plus a smooth stand-in for the l0 norm, a gradient scaled to unit ∞-norm, and a
threshold τ that prunes small changes and adapts to success. The paper's pseudo-code differs from the released
code in several points; docs/evidence/fidelity.md lists each with what is done here.

    a     current point, always inside the box          τ    pruning threshold, one per sample
    δ     a − x, the perturbation                        η    step size, annealed by a cosine to a tenth
    g     gradient of the loss                           σ    smoothing of the l0 norm: δ² / (δ² + σ)
    m, v  Adam's moments                                 t    how fast τ moves, in units of η

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[1., 1., 1., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., .5]))
>>> result = sz.get("sigma-zero", steps=50).run(model, torch.full((1, 4), 0.5), torch.tensor([0]))
>>> int(result.l0[0])
4
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from sigmazero.attacks.exploring import Exploring
from sigmazero.core import losses, ops
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Domain
from sigmazero.core.losses import LossName
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count, Momentum, NotNegative, Positive
from sigmazero.core.problem import Problem


@dataclass
class State:
    """One row per sample."""

    a: Tensor
    τ: Tensor
    m: Tensor
    v: Tensor


@dataclass(frozen=True, kw_only=True)
class SigmaZero(Attack):
    """Descend on the loss plus a smooth count of the changed features, and set small changes to zero after every step.
    What counts as small grows while a sample is fooled and shrinks while it is not.

    Turning a switch off, or the optimiser to "sgd", gives the paper's ablations. `order="paper"` with `optimizer="sgd"`
    is the pseudo-code to the letter: the first projection uses the initial threshold, the threshold is not clamped, and
    the last iterate is evaluated too. The step size falls along a cosine.
    """

    name: str = "sigma-zero"
    steps: Count = 1000
    step_size: Annotated[Positive, "length of a step, in units of the box"] = 1.0
    step_size_end: Annotated[Positive, "share of the step size that is left at the end"] = 0.1
    beta2: Annotated[Momentum, "Adam's weight of past squared gradients"] = 0.999
    loss: LossName = "hinge"
    smoothing: Annotated[Positive, "how smooth the stand-in for the count is; smaller is closer to the count"] = 1e-3
    threshold: Annotated[NotNegative, "changes smaller than this are set to zero at first"] = 0.3
    threshold_rate: Annotated[NotNegative, "how fast the threshold rises and falls"] = 0.01
    normalize: Annotated[bool, "divide gradients by their norm"] = True
    grad_norm: Annotated[Positive | Literal["inf"], "which norm: inf for the largest entry, or a p such as 2"] = "inf"
    adaptive_threshold: Annotated[bool, "let the threshold follow success; off for an ablation"] = True
    projection: Annotated[bool, "set changes below the threshold to zero; off for an ablation"] = True
    l0_term: Annotated[bool, "add the stand-in for the count to the loss; off for an ablation"] = True
    optimizer: Annotated[Literal["adam", "sgd"], "how steps follow gradients: adam or sgd"] = "adam"
    order: Annotated[Literal["released", "paper"], "released: as the authors' code; paper: as their pseudo-code"] = (
        "released"
    )

    asks: ClassVar[str] = "2 queries a step"
    paper: ClassVar[str] = "https://arxiv.org/abs/2402.01879"
    version: ClassVar[int] = 4
    aliases: ClassVar[dict[str, str]] = {
        "lr": "step_size",
        "η_0": "step_size",
        "sigma": "smoothing",
        "σ": "smoothing",
        "τ_0": "threshold",
        "t": "threshold_rate",
        "τ_factor": "threshold_rate",
    }

    def __post_init__(self) -> None:
        """Take infinity as the number that other code passes, and numbers as text, as plans write them."""
        norm: object = self.grad_norm
        if isinstance(norm, str) and norm.replace(".", "", 1).isdecimal():
            norm = float(norm)
        object.__setattr__(self, "grad_norm", "inf" if norm == math.inf else norm)
        super().__post_init__()

    @property
    def iterations(self) -> int:
        """Return one step more for the pseudo-code, which evaluates its last iterate; the released code does not."""
        return self.steps + (self.order == "paper")

    @cached_property
    def rates(self) -> Tensor:
        """Return for each step its size, the size that moves τ, and Adam's two corrections."""
        η = torch.cat([c := ops.cosine(self.steps, self.step_size, self.step_size_end * self.step_size), c[-1:]])
        moves = η[1:] if self.order == "released" else η
        n = self.iterations
        return torch.stack([η[:n], moves[:n], *ops.adam_corrections(n, beta2=self.beta2)], 1)

    def phases(self, problem: Problem | None = None) -> tuple[Attack, ...]:
        """Walk alone, or look elsewhere too where the walk would miss legal values."""
        explore = problem is not None and problem.domain.needs_exploring
        return (Exploring(walker=self, steps=self.iterations),) if explore else (self,)

    def init(self, oracle: Oracle) -> State:
        """Start at the clean point."""
        x = oracle.domain.x
        return State(x, x.new_full((len(x),), self.threshold), torch.zeros_like(x), torch.zeros_like(x))

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Evaluate, then descend."""
        answer = oracle.value_and_grad(s.a, losses.get(self.loss, oracle.goal))
        return self.descend(i, s, answer.grad, answer.fooled, oracle)

    def descend(self, i: Tensor, s: State, g: Tensor, fooled: Tensor, oracle: Oracle) -> State:
        """Take one iteration of Algorithm 1, given the gradient of the loss at a; σ-swap calls it too."""
        d, m, v, τ = oracle.domain, s.m, s.v, s.τ
        η, η_τ, c1, c2 = oracle.row(self.rates, i)
        if self.l0_term:
            g = g + self.l0_gradient(s.a - d.x, d)
        if self.normalize:
            length = ops.largest(g) if self.grad_norm == "inf" else g.flatten(1).norm(p=self.grad_norm, dim=1)
            g = g / ops.per_row(length.clamp(min=1e-12), g)
        if self.optimizer == "adam":
            g, m, v = ops.adam(g, m, v, c1, c2, beta2=self.beta2)
        a = d.clip(s.a - η * g)
        if self.adaptive_threshold:  # raise τ where the point is adversarial, lower it elsewhere
            move = self.threshold_rate * η_τ
            moved = τ + torch.where(fooled, move, -move)
            τ = moved.clamp(0, 1) if self.order == "released" else torch.where(i > 0, moved, τ)
        if self.projection:  # undo changes smaller than τ
            a = torch.where(d.site_max((a - d.x).abs()) < ops.per_row(τ, a) * d.weights, d.x, a)
        return State(a, τ, m, v)

    def l0_gradient(self, δ: Tensor, d: Domain) -> Tensor:
        """Return the gradient of the mean over sites of s / (s + σ), with s the squared change of a site."""
        s = d.site_sum(δ * δ)
        c = s + self.smoothing
        share = d.weights / d.sites
        # The quotient rule as autograd applies it, not σ / (s + σ)²: the two differ by rounding, which the attack
        # amplifies, and the authors' iterates come from this one.
        return 2 * δ * (share / c) - 2 * δ * (share * (s / c / c))
