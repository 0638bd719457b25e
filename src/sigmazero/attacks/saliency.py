r"""Saliency (after JSMA, Papernot et al., 2016, https://arxiv.org/abs/1511.07528): the greedy baseline, in any space.

Each step asks for one gradient and changes one more site: the one that promises most for its cost, moved as far as it
may go. A row ends with its first adversarial point, or when no site that is left promises anything.

    a    current point        gain    what the better end of a site promises by the gradient, per cost

The paper aims at a target class, ranks pairs of features by the slopes of the target and of all other classes together,
and moves them by a fixed amount in one direction. Here the slope is that of the margin, whatever the goal; sites change
one at a time and in either direction, each to its best legal value: an end, or in a one-hot group the best other
category. Of rows of features in a space, values between the ends are asked about too. A site is changed once and never
given back.

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> result = sz.get("saliency").run(model, torch.full((1, 4), 0.5), torch.tensor([0]))
>>> int(result.l0[0]), int(result.backwards[0])
(2, 3)
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sigmazero.attacks.swap import sites
from sigmazero.core import losses
from sigmazero.core.attack import Attack
from sigmazero.core.losses import LossName
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count

VALUES = 8  # values from end to end that a number of a row may take


@dataclass
class State:
    """One row per sample; `used` marks the sites that were moved, (rows, sites)."""

    a: Tensor
    used: Tensor
    done: Tensor


@dataclass(frozen=True, kw_only=True)
class Saliency(Attack):
    """Change one site after the other, each time the one whose gradient promises most. It is one of the oldest sparse
    attacks, and a baseline.

    A point with k changes is asked about in step k, so `steps` − 1 changes are the most.
    """

    name: str = "saliency"
    steps: Count = 1000
    loss: LossName = "margin"

    asks: ClassVar[str] = "2 queries a step, and 9 more for rows in a space"
    paper: ClassVar[str] = "https://arxiv.org/abs/1511.07528"
    version: ClassVar[int] = 3
    finite_box: ClassVar[bool] = True

    def init(self, oracle: Oracle) -> State:
        """Start at the clean point."""
        d = oracle.domain
        used = torch.zeros(len(d), d.sites, dtype=torch.bool, device=d.x.device)
        return State(d.x, used, torch.zeros_like(oracle.incumbents.alive))

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Ask once, change the site that promises most."""
        d = oracle.domain
        answer = oracle.value_and_grad(s.a, losses.get(self.loss, oracle.goal))
        ends = sites.ends(d, d.by_site(answer.grad))
        gain = ends.gain.masked_fill(s.used, -torch.inf)
        most, where = gain.max(1, keepdim=True)
        chosen = torch.zeros_like(s.used).scatter(1, where, True)
        a = torch.where(chosen[:, None], ends.end, d.by_site(s.a)).view_as(s.a)
        if d.needs_exploring and oracle.problem.x.ndim == 2:
            a = self._best(a, chosen, oracle)
        return State(a, s.used | chosen, answer.fooled | (most[:, 0] <= 0))

    def _best(self, a: Tensor, chosen: Tensor, oracle: Oracle) -> Tensor:
        """Give the site that was chosen its best value: the end, or one of those on the way from end to end."""
        d = oracle.domain
        lower, upper, end = (d.by_site(v)[:, None] for v in (d.lower, d.upper, a))
        share = torch.arange(VALUES, device=a.device).view(1, -1, 1, 1).to(a.dtype) / (VALUES - 1)
        between = lower + share * (upper - lower)
        fixed = ~between.isfinite() if d.categories is None else ~between.isfinite() | d.categories
        points = torch.where(chosen[:, None, None] & ~fixed, between, end).view(len(a), VALUES, *a.shape[1:])
        points = torch.cat([a[:, None], d.snap(points)], 1)
        best = oracle.goal.margin(oracle.logits(points, copies=VALUES + 1)).argmin(1)
        return points[torch.arange(len(a), device=a.device), best]
