r"""Brendel & Bethge, l0 version (Brendel et al., NeurIPS 2019, https://arxiv.org/abs/1907.01003).

Starts at an adversarial point and follows the boundary between the classes: the margin is linearised at the current
point and the sparsest point on that plane within a trust region and the box is the next one (see solver).

    a    current point                               b    running mean of the gradients of the margin
    m    margin at a, negative when adversarial      c    change of the margin asked of a step
    r    radius of the trust region

Differences from the reference, besides those named at their places in the code:

* the radius does not depend on the batch; `radius_batch` stands for its size;
* a change of at most 1e-4 of the box (`tolerance`), which the reference does not count, is undone at once, so that
  every point asked about has the number of changes that is counted; with tolerance=0 iterates are the reference's;
* a row without a start ends alone;
* points known to be adversarial are not asked about again before the search.

In pixel unit the sub-problem counts and moves positions with all their channels.

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[1., 1., 1., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., .9]))
>>> result = sz.get("bb", steps=50, radius=0.5).run(model, torch.full((1, 4), 0.5), torch.tensor([0]))
>>> int(result.l0[0])
3
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from sigmazero.attacks.bb import solver
from sigmazero.attacks.bb import start as starts
from sigmazero.core import ops
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Domain
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count, Momentum, NotNegative, Positive, Range, Whole


@dataclass
class State:
    """One row per sample; `fewest` counts the changes of `own`."""

    a: Tensor
    b: Tensor
    own: Tensor
    fewest: Tensor


@dataclass(frozen=True, kw_only=True)
class BrendelBethge(Attack):
    """Start at an adversarial point far away and follow the decision boundary towards the input. Each step solves a
    small optimisation problem.

    Points passed to `run` as `start` come before those of `start_from`. The radius is multiplied by `radius_decay`
    about `radius_decays` times during a run. The reference's radius grows with its batch; 32 is the batch of the
    published comparisons, and with 1 so few features move per step that short runs end far from the boundary.
    """

    name: str = "bb"
    steps: Count = 1000
    overshoot: Annotated[float, Range(least=1, below=2), "how far beyond the boundary a step aims"] = 1.1
    radius: Annotated[Positive, "the first trust radius per feature"] = 1e-3
    radius_batch: Annotated[Count, "the batch for which the reference chose its radius"] = 32
    radius_decay: Annotated[Positive, "what the radius is multiplied by when it shrinks"] = 0.5
    radius_decays: Annotated[Count, "how often it shrinks in a run"] = 20
    momentum: Annotated[Momentum, "weight of the past in the running gradient"] = 0.8
    halvings: Annotated[Whole, "halvings of the way from the start to the input"] = 10
    tolerance: Annotated[NotNegative, "changes this small, as a share of the box, are undone"] = 1e-4
    start_from: Annotated[Literal["noise", "pool"], "noise: random points; pool: inputs of other classes"] = "noise"
    directions: Annotated[Count, "random points that are tried as a start at most"] = 1000
    blends: Annotated[Count, "places between the input and a start that are tried"] = 1000

    asks: ClassVar[str] = "2 queries a step, and a start"
    paper: ClassVar[str] = "https://arxiv.org/abs/1907.01003"
    version: ClassVar[int] = 3
    keeps_own: ClassVar[bool] = True
    finite_box: ClassVar[bool] = True
    takes: ClassVar[frozenset[str]] = frozenset({"start", "pool"})

    @cached_property
    def rates(self) -> Tensor:
        """Return for each step the weight of the new gradient and the trust radius per feature."""
        every = max(1, self.steps // self.radius_decays)
        # The reference counts steps from 1 and shrinks before it uses the radius, in each step t whose t + 1 is a
        # multiple of `every`. By step i that is every multiple from 2 to i + 2; 1, where `every` is 1, does not count.
        shrunk = [(i + 2) // every - 1 // every for i in range(self.steps)]
        radii = [self.radius * self.radius_batch * self.radius_decay**n for n in shrunk]
        weights = [1 - self.momentum if i else 1.0 for i in range(self.steps)]
        return torch.tensor(list(zip(weights, radii, strict=True)), dtype=torch.float64, device="cpu")

    def init(self, oracle: Oracle) -> State:
        """Find a starting point per row and walk from it towards the clean one."""
        d = oracle.domain
        start, found = self._start(oracle)
        rows = found.nonzero().squeeze(1)
        a = start.clone()
        a[rows] = self._snap(starts.towards_clean(oracle, rows, start[rows], self.halvings), d.take(rows))
        oracle.no_start(~found)
        return State(a, torch.zeros_like(a), start, torch.full_like(oracle.goal.y, d.sites + 1))

    def _start(self, oracle: Oracle) -> tuple[Tensor, Tensor]:
        p, d = oracle.problem, oracle.domain
        every = torch.arange(len(p), device=d.x.device)
        if p.start is not None:
            start = d.clip(d.from_user(p.start))
            return start, starts.ask(oracle, every, start[:, None]).squeeze(1)
        if self.start_from == "pool":
            return starts.from_pool(oracle, every)
        start, found = starts.from_noise(oracle, self.directions, self.blends)
        # The reference gives up the whole batch where noise never fools the model; an input of another class may.
        lost = (~found).nonzero().squeeze(1)
        start[lost], found[lost] = starts.from_pool(oracle, lost)
        return start, found

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Evaluate, linearise, go to the sparsest point of the plane."""
        d = oracle.domain
        weight, radius = oracle.row(self.rates, i)
        answer = oracle.value_and_grad(s.a, oracle.goal.margin)
        count = d.l0(s.a)
        better = answer.fooled & (count < s.fewest)
        own, fewest = torch.where(ops.per_row(better, s.a), s.a, s.own), torch.where(better, count, s.fewest)
        m, b = answer.value, torch.lerp(s.b, answer.grad, weight)
        # From outside, go a little beyond the boundary; from inside, not quite back to it.
        c = -torch.where(m > 0, self.overshoot * m, (2 - self.overshoot) * m)
        x, a, g, lower, upper = (d.by_site(v) for v in (d.x, s.a, b, d.lower, d.upper))
        step = solver.solve(x, a, g, c, (radius * d.features).expand(len(d)), lower, upper)
        a = torch.where(step.clean, x, (a.double() + step.s).to(a.dtype)).view_as(d.x)
        return State(self._snap(d.clip(a), d), b, own, fewest)

    def _snap(self, a: Tensor, d: Domain) -> Tensor:
        """Undo changes that do not count."""
        change = ((a - d.x).abs() - self.tolerance * (d.upper - d.lower)).expand_as(a)
        return torch.where(d.site_max(change) <= 0, d.x, a)
