r"""Sparse-RS (Croce et al., AAAI 2022, https://arxiv.org/abs/2006.12834): random search over k sites, no gradients.

k random sites get random corner values of the box. Each query exchanges a shrinking share of them for others with
fresh values; the change stays if the loss fell. Points where the released code differs:

* it draws one permutation for the whole batch, here every row draws its own;
* its values are {0, 1}, here the lower and upper bound; sites without room to change are never chosen;
* a single new site must differ from what it replaces: it draws until that holds, here the other values are drawn
  from directly, with equal probability;
* with fewer sites outside the set than there are to exchange it exchanges fewer; here members get new values instead.

    a    best point so far, M its sites          k     sites that may change, one number per sample
    n    how many sites this query exchanges     m     how many are members now (0 in a row that starts)

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> result = sz.get("sparse-rs", steps=100).run(model, torch.full((1, 4), 0.5), torch.tensor([0]), budget=2)
>>> int(result.l0[0]), int(result.backwards[0])
(2, 0)
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from sigmazero.attacks import budget
from sigmazero.core import losses, noise, ops
from sigmazero.core.losses import LossName
from sigmazero.core.model import Ability
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count, Share

# After how many of 10,000 queries the share of exchanged sites becomes the initial share divided by what.
SHRINK = ((0, 2), (50, 4), (200, 5), (500, 6), (1000, 8), (2000, 10), (4000, 12), (6000, 15), (8000, 20))


@dataclass(kw_only=True)
class State(budget.State):
    """One row per sample."""

    a: Tensor
    M: Tensor
    loss: Tensor


@dataclass(frozen=True, kw_only=True)
class SparseRS(budget.BudgetAttack):
    """Search at random within a budget: exchange some of the k changed sites and keep what is better. It needs no
    gradients, so it shows whether gradients mislead.

    The paper calls `initial_share` α_init: 0.8 in the released class, 0.3 in its ImageNet runs.
    """

    name: str = "sparse-rs"
    steps: Annotated[Count, "queries"] = 10_000
    initial_share: Annotated[Share, "share of the changed sites that are exchanged at first"] = 0.8
    loss: LossName = "margin"

    asks: ClassVar[str] = "1 query a step"
    paper: ClassVar[str] = "https://arxiv.org/abs/2006.12834"
    version: ClassVar[int] = 3
    needs: ClassVar[Ability] = "scores"

    @cached_property
    def drops(self) -> list[tuple[int, int]]:
        """Return from which age on the divisor of the share grows, and by how much."""
        scaled = [int(age / self.steps * 10_000) for age in range(self.steps)]
        firsts = [next((age for age, t in enumerate(scaled) if t > after), self.steps) for after, _ in SHRINK]
        divisors = [1, *(divisor for _, divisor in SHRINK)]
        return [(first, b - a) for first, a, b in zip(firsts, divisors, divisors[1:], strict=False)]

    def begin(self, oracle: Oracle, k: Tensor) -> State:
        """Begin without members; the first step draws them, and whatever it finds is an improvement."""
        x = oracle.domain.x
        return State(
            k=k,
            age=torch.zeros_like(k),
            a=x,
            M=torch.zeros(len(x), oracle.domain.sites, dtype=torch.bool, device=x.device),
            loss=x.new_full((len(x),), torch.inf),
        )

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Exchange, evaluate, keep what is better."""
        d = oracle.domain
        fresh = s.age == 0
        room = budget.movable(d).any(1)
        m, count = s.M.sum(1), room.sum(1)
        n = self.exchanged(s.age, s.k).minimum(count)
        # In random order: the members, then the other sites, then those that cannot change.
        luck = noise.bits(oracle.problem.seed, oracle.problem.ids, i, (d.sites,))
        rank = ops.ranks((luck >> 2) + (torch.where(room, (~s.M).long(), 2) << 61))
        first = torch.minimum(m, count - n)[:, None]
        out = s.M & (rank < torch.minimum(n, count - m)[:, None])
        new = (rank >= first) & (rank < first + n[:, None])
        if d.several is not None:  # in a space a member may need another value, as often as another member
            new = torch.where((luck[:, :1] & 1 == 0) & ~fresh[:, None], out, new)
        a = d.by_site(s.a)
        values = self._draw_values(oracle, i, a, must_differ=(n == 1) & ~fresh)
        proposal = torch.where(new[:, None], values, torch.where(out[:, None], d.by_site(d.x), a))
        proposal = proposal.view_as(d.x)
        logits = oracle.logits(proposal)
        loss = losses.get(self.loss, oracle.goal)(logits)
        better = (loss < s.loss) | (oracle.goal.margin(logits) < -1e-6)
        return replace(
            s,
            age=s.age + 1,
            a=torch.where(ops.per_row(better, proposal), proposal, s.a),
            M=torch.where(better[:, None], (s.M & ~out) | new, s.M),
            loss=torch.where(better, loss, s.loss),
        )

    def exchanged(self, age: Tensor, k: Tensor) -> Tensor:
        """Return how many sites get new values: all k at the start, then a share of k that shrinks with age."""
        divisor = torch.ones_like(age)
        for first, more in self.drops:
            divisor = divisor + more * (age >= first)
        n = (self.initial_share / divisor.double() * k).long().clamp(min=1)
        return torch.where(age == 0, k, n).minimum(k)

    def _draw_values(self, oracle: Oracle, i: Tensor, a: Tensor, must_differ: Tensor) -> Tensor:
        """Return a random corner value for every feature; where it must differ from a, one of the other corners.

        Where there are legal values between the corners, any of them.
        """
        p, d = oracle.problem, oracle.domain
        if d.needs_exploring:
            return d.by_site(d.draw(oracle.uniform(i, stream=1)))
        lower, upper = d.by_site(d.lower), d.by_site(d.upper)
        bits = noise.bits(p.seed, p.ids, i, tuple(a.shape[1:]), stream=1)
        values = torch.where(bits & 1 == 0, lower, upper)
        room = lower < upper
        same = (values == a).all(1, keepdim=True) & must_differ[:, None, None]
        # Each way to flip at least one of the features with room, numbered from 1, is equally likely.
        ways = (1 << room.sum(1, keepdim=True).clamp(max=61)) - 1
        way = 1 + (bits[:, :1] >> 1) % ways.clamp(min=1)
        flip = (way >> (room.cumsum(1) - 1).clamp(min=0, max=62)) & 1 == 1
        return torch.where(same & flip & room, torch.where(a == lower, upper, lower), values)


@dataclass(frozen=True, kw_only=True)
class InnerRS(SparseRS):
    """Run Sparse-RS with values from anywhere in the box. A defence that throws away the largest and smallest inputs
    throws away corners, and keeps values between them.
    """

    name: str = "sparse-rs-inner"

    def _draw_values(self, oracle: Oracle, i: Tensor, a: Tensor, must_differ: Tensor) -> Tensor:
        """Return a random value for every feature, which differs from a by itself."""
        d = oracle.domain
        if d.needs_exploring:
            return super()._draw_values(oracle, i, a, must_differ)
        return d.by_site(torch.lerp(d.lower.expand_as(d.x), d.upper.expand_as(d.x), oracle.uniform(i, stream=1)))
