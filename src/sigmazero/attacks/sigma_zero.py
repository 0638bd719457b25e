r"""σ-zero (Cinà et al., ICLR 2025, https://arxiv.org/abs/2402.01879), as its authors released it.

Gradient descent on the margin plus a smooth stand-in for the l0 norm, a gradient scaled to unit ∞-norm, and a
threshold τ that prunes small changes and adapts to success. The paper's pseudo-code differs from the released
code in several points; docs/adr/0002 lists each with what is done here.

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

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sigmazero.core import form as forms
from sigmazero.core import losses, noise, ops
from sigmazero.core.attack import Attack
from sigmazero.core.losses import LossName
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count, Momentum, NotNegative, Positive
from sigmazero.core.problem import Problem

ALONE = 0.2  # share of the steps before the walk in a space looks elsewhere
FEW = 4  # changes of an example of which parts are looked for
JOIN = 1.5  # sites that join a part, on average, where changes have costs
BACK, STAY = 0.5, 0.1  # chances that a site is put back, and that it stays as it is; the others get any legal value


@dataclass
class State:
    """One row per sample."""

    a: Tensor
    τ: Tensor
    m: Tensor | None
    v: Tensor | None


@dataclass(frozen=True, kw_only=True)
class SigmaZero(Attack):
    """σ-zero. Turning a switch off, or the optimiser to "sgd", gives the paper's ablations.

    order="paper" with optimizer="sgd" is the pseudo-code to the letter: the first projection uses the initial
    threshold, the threshold is not clamped, and the last iterate is evaluated too.
    The step size falls along a cosine to `step_size_end` times itself; with 1 it stays. `beta2` is Adam's.
    """

    name: str = "sigma-zero"
    steps: Count = 1000
    step_size: Positive = 1.0
    step_size_end: Positive = 0.1
    beta2: Momentum = 0.999
    loss: LossName = "hinge"
    smoothing: Positive = 1e-3
    threshold: NotNegative = 0.3
    threshold_rate: NotNegative = 0.01
    normalize: bool = True
    adaptive_threshold: bool = True
    projection: bool = True
    l0_term: bool = True
    optimizer: Literal["adam", "sgd"] = "adam"
    order: Literal["released", "paper"] = "released"

    paper: ClassVar[str] = "https://arxiv.org/abs/2402.01879"
    renamed: ClassVar[dict[str, str]] = {"memory": "beta2", "final_step": "step_size_end"}

    @property
    def iterations(self) -> int:
        """The pseudo-code evaluates its last iterate, the released code does not."""
        return self.steps + (self.order == "paper")

    @cached_property
    def rates(self) -> Tensor:
        """Per step: step size, the step size that moves τ, Adam's two corrections."""
        η = torch.cat([c := ops.cosine(self.steps, self.step_size, self.step_size_end * self.step_size), c[-1:]])
        moves = η[1:] if self.order == "released" else η
        n = self.iterations
        return torch.stack([η[:n], moves[:n], *ops.adam_corrections(n, beta2=self.beta2)], 1)

    def init(self, oracle: Oracle) -> State:
        """Start at the clean point."""
        x = oracle.problem.x
        moments = (torch.zeros_like(x), torch.zeros_like(x)) if self.optimizer == "adam" else (None, None)
        return State(x, x.new_full((len(x),), self.threshold), *moments)

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Evaluate, then descend."""
        p = oracle.problem
        point, there = s.a, None
        if p.form is not None:
            # The walk jumps between the ends of what has few values, so every other step looks elsewhere: around it as
            # long as nothing was found, then for a part of the best example, while that is small enough to be hit.
            best, turn = oracle.tally.best_l0, (i >= self.steps * ALONE) & (i % 2 == 1)
            nothing = best > p.sites
            elsewhere = turn & (nothing | (best <= FEW))
            if p.x.is_cuda or bool(elsewhere.any()):
                around = torch.where(ops.per_row(nothing, s.a), s.a, oracle.tally.best)
                varied = self.varied(i, around, nothing, p)
                if p.costs is not None:
                    varied = self.cheaper(i, varied, nothing, oracle)
                point = torch.where(ops.per_row(elsewhere, s.a), varied, s.a)
                there = elsewhere & nothing
        answer = oracle.value_and_grad(point, losses.named(self.loss, p))
        if there is not None:  # the walk goes on from the first example
            s = replace(s, a=torch.where(ops.per_row(there & answer.fooled, point), point, s.a))
        return self.descend(i, s, answer.grad, answer.fooled, oracle)

    def varied(self, i: Tensor, a: Tensor, anything: Tensor, p: Problem) -> Tensor:
        """A point with some sites put back and others at any legal value, those that are unchanged only if so said."""
        shape = tuple(p.x.shape[1:])
        fate, values = (noise.uniform(p.seed, p.ids, i, shape, stream=k, dtype=a.dtype) for k in (5, 6))
        fate = fate[:, :1] if p.grouped else fate
        drawn = forms.some(p, values)
        drawn = torch.where(drawn.isfinite(), drawn, a)  # a feature may have no end to go to
        drawn = torch.where(ops.per_row(anything, a) | p.changed(a), drawn, p.x)
        back = torch.where(ops.per_row(anything, a), BACK / 2, BACK)
        return torch.where(fate < back, p.x, torch.where(fate < back + STAY, a, drawn))

    def cheaper(self, i: Tensor, a: Tensor, anything: Tensor, oracle: Oracle) -> Tensor:
        """The point with some more sites at any legal value, where it still costs less than the best example.

        A cheap example may change other sites than the best one known, and more of them.
        """
        p, shape = oracle.problem, tuple(oracle.problem.x.shape[1:])
        fate, values = (noise.uniform(p.seed, p.ids, i, shape, stream=k, dtype=a.dtype) for k in (7, 8))
        fate = fate[:, :1] if p.grouped else fate
        drawn = forms.some(p, values)
        drawn = torch.where(drawn.isfinite() & ~p.changed(a), drawn, a)
        more = p.legal(torch.where(fate * p.sites < JOIN, drawn, a))
        return torch.where(ops.per_row(anything | (p.cost(more) >= oracle.tally.best_cost), a), a, more)

    def descend(self, i: Tensor, s: State, g: Tensor, fooled: Tensor, oracle: Oracle) -> State:
        """Go downhill and prune, given the gradient of the loss at s.a."""
        p = oracle.problem
        η, η_τ, c1, c2 = oracle.row(self.rates, i)
        if self.l0_term:
            g = g + self.l0_gradient(s.a - p.x, p)
        if self.normalize:
            g = g / ops.per_row(ops.largest(g).clamp(min=1e-12), g)
        m, v = s.m, s.v
        if m is not None and v is not None:
            g, m, v = ops.adam(g, m, v, c1, c2, beta2=self.beta2)
        a = p.clip(s.a - η * g)
        τ = s.τ
        if self.adaptive_threshold:
            τ = self.adapt(i, τ, fooled, self.threshold_rate * η_τ)
        if self.projection:
            least = ops.per_row(τ, a) if p.costs is None else ops.per_row(τ, a) * prices(p)
            a = torch.where(p.join((a - p.x).abs()) < least, p.x, a)
        return State(a, τ, m, v)

    def l0_gradient(self, δ: Tensor, p: Problem) -> Tensor:
        """Gradient of the smooth l0 norm, mean over sites of s / (s + σ) with s the squared change of a site."""
        s = δ.square().sum(1, keepdim=True) if p.grouped else δ * δ
        # The quotient rule as autograd applies it, not σ / (s + σ)²: the two differ by rounding, which the attack
        # amplifies, and the authors' iterates come from this form.
        c = s + self.smoothing
        share = 1 / p.sites if p.costs is None else prices(p) / p.sites
        return 2 * δ * (share / c) - 2 * δ * (share * (s / c / c))

    def adapt(self, i: Tensor, τ: Tensor, fooled: Tensor, move: Tensor) -> Tensor:
        """Raise τ where the point is adversarial, lower it elsewhere."""
        moved = τ + torch.where(fooled, move, -move)
        return moved.clamp(0, 1) if self.order == "released" else torch.where(i > 0, moved, τ)


def prices(p: Problem) -> Tensor:
    """What a change of each site costs where the mean is 1, shaped to stand beside the inputs."""
    assert p.costs is not None
    return (p.costs / p.costs.mean()).to(p.x).view(1, *((1, *p.x.shape[2:]) if p.grouped else p.x.shape[1:]))
