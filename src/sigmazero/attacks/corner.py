r"""Corner (docs/spaces.md): every single change, then pairs of the best singles, then ever more changes from the best.

Where few changes suffice and values are few, asking about all of them is exact and needs no gradient. A single change
gives a site another legal value: any value of an integer, a grid or a finite set, any other category, an end of a real
feature. If any single change succeeds it is found; features of 4,096 values and more, real ones and tied groups, whose
ends alone are tried, are the exception. Pairs come in the order of the ranks of their singles. Then a few of the best
points get one more change each, again by rank, until one succeeds.

    M    single changes of a sample         V    how many of them are possible for it
    m    their margins                      B    points that are taken further

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> result = sz.get("corner").run(model, torch.full((1, 4), 0.5), torch.tensor([0]))
>>> int(result.l0[0]), int(result.backwards[0])
(2, 0)
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from sigmazero.core import ops
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Domain, Moves
from sigmazero.core.model import Ability
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count
from sigmazero.core.problem import Problem


@dataclass
class State:
    """One row per sample: values (features of a site, M) and sites (M) of all changes, possible ones first in `order`.

    `partner` (M) says which feature joins first where a change breaks a rule.
    `ranks` are those of the pairs, turn by turn; `points` are those to go on from.
    """

    values: Tensor
    site: Tensor
    ranks: Tensor
    order: Tensor
    count: Tensor
    m: Tensor
    points: Tensor
    points_m: Tensor
    done: Tensor
    partner: Tensor


@dataclass(frozen=True, kw_only=True)
class Corner(Attack):
    """Ask about every single change, then about pairs of the best ones, then go on greedily. For few features that is
    close to trying everything.
    """

    name: str = "corner"
    steps: Count = 1000
    width: Annotated[Count, "points per step"] = 32
    pairs: Annotated[Count, "steps for pairs of the best single changes"] = 8
    beam: Annotated[Count, "points that get one more change in each step after the pairs"] = 4

    asks: ClassVar[str] = "`width` queries a step"
    paper: ClassVar[str] = "docs/spaces.md"
    version: ClassVar[int] = 3
    needs: ClassVar[Ability] = "scores"
    finite_box: ClassVar[bool] = True
    unroll: ClassVar[int] = 1

    def check(self, problem: Problem) -> None:
        """Refuse a space with more single changes than the steps can ask about."""
        super().check(problem)
        needed, changes = self.needed(problem), problem.domain.single_changes
        if needed > self.steps:
            raise ValueError(f"{self.name}: {changes} single changes need {needed} steps; pass steps={needed} or more")

    def needed(self, problem: Problem) -> int:
        """Return how many steps it takes to ask about every single change."""
        return -(-problem.domain.single_changes // self.width)

    @cached_property
    def ranks(self) -> Tensor:
        """Return pairs of ranks, those of the smallest sums first: (pairs · width, 2)."""
        n = self.pairs * self.width
        most = int((4 * n) ** 0.5) + 2
        pairs = sorted(((a, b) for b in range(most) for a in range(b)), key=lambda pair: (sum(pair), pair))
        return torch.tensor(pairs[:n], dtype=torch.int64, device="cpu").view(self.pairs, -1)

    @property
    def best_points(self) -> int:
        """Return how many points are taken further; a narrow step has room for fewer."""
        return min(self.beam, self.width)

    def init(self, oracle: Oracle) -> State:
        """Find the possible changes; nothing is asked."""
        d = oracle.domain
        every = d.moves()
        values = every.value
        where = every.site.expand_as(values)
        x, lower, upper = (d.by_site(v).gather(2, where) for v in (d.x, d.lower, d.upper))
        possible = (values != x).any(1) & ((values >= lower) & (values <= upper)).all(1)
        if d.tied:
            possible &= (every.partner == 0) | self._breaking(every, d)
        count = possible.sum(1)
        return State(
            values=values,
            site=where[:, 0].clone(),
            ranks=self.ranks.to(d.x.device).repeat(len(d), 1, 1),
            order=(~possible).byte().argsort(dim=1, stable=True),
            count=count,
            m=torch.full_like(values[:, 0], torch.inf),
            points=d.x[:, None].repeat(1, self.best_points, *[1] * (d.x.ndim - 1)),
            points_m=values.new_full((len(d), self.best_points), torch.inf),
            done=count == 0,
            partner=every.partner.repeat(len(d), 1),
        )

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Ask about the next `width` singles, pairs or larger points, each row about what it has come to."""
        d, most = oracle.domain, s.order.shape[1] - 1
        t = i - torch.div(s.count + self.width - 1, self.width, rounding_mode="floor")  # steps after the singles
        alone, paired = t < 0, (t >= 0) & (t < self.pairs)
        places = i * self.width + torch.arange(self.width, device=t.device)
        first = s.order.gather(1, places.clamp(max=most).expand(len(t), -1))
        singles = alone[:, None] & (places < s.count[:, None])
        best = self._order(s, d)
        turn = t.clamp(0, self.pairs - 1)[:, None, None].expand(-1, 1, 2 * self.width)
        ranks = s.ranks.gather(1, turn).view(len(t), self.width, 2).clamp(max=most)
        two = best.gather(1, ranks.flatten(1)).view_as(ranks)
        good = paired[:, None] & s.m.gather(1, two.flatten(1)).view_as(ranks).isfinite().all(2)
        grown, more, fits = self._extend(s, best, d)
        start = torch.where(ops.per_row(alone | paired, grown), d.x[:, None], grown)
        start = self._changed(start, torch.where(paired[:, None], two[..., 0], more), paired[:, None] & good, s, d)
        last = torch.where(alone[:, None], first, torch.where(paired[:, None], two[..., 1], more))
        use = torch.where(alone[:, None], singles, torch.where(paired[:, None], good, fits))
        points = self._changed(start, last, use, s, d)
        margins = oracle.goal.margin(oracle.logits(points, copies=self.width))
        margins = margins.masked_fill(~use, torch.inf)
        # A change without a query now keeps its margin.
        m = s.m.scatter_reduce(1, first, torch.where(singles, margins, torch.inf), "amin")
        return self._judged(replace(s, m=m), points, margins, t, oracle)

    def _order(self, s: State, d: Domain) -> Tensor:
        """Return the singles by their margins, the best first; in a space the best of every site before all others."""
        promise = s.m
        if d.weighted:  # their gain per cost
            worst = torch.where(s.m.isfinite(), s.m, -torch.inf).amax(1, keepdim=True)
            promise = torch.where(s.m.isfinite(), (s.m - worst) / d.costs[s.site], torch.inf)
        order = promise.argsort(dim=1, stable=True)
        if not d.needs_exploring:
            return order
        most = torch.full_like(promise[:, :1], torch.inf).repeat(1, d.sites)
        most = most.scatter_reduce(1, s.site, promise, "amin")
        others = (promise > most.gather(1, s.site)).gather(1, order)
        return order.gather(1, others.byte().argsort(dim=1, stable=True))

    def _extend(self, s: State, best: Tensor, d: Domain) -> tuple[Tensor, Tensor, Tensor]:
        """Return points to go on from (N, width, ...), a change for each, and whether there is one left."""
        each = -(-self.width // self.best_points)
        changed = torch.stack([d.changed(point).flatten(1) for point in s.points.unbind(1)], 1)
        used = (
            changed.gather(2, s.site[:, None].expand(-1, self.best_points, -1))
            | s.m.isinf()[:, None]
            | s.points_m.isinf()[:, :, None]
        )
        used = used.gather(2, best[:, None].expand_as(used))
        n = min(each, used.shape[2])
        left, where = used.byte().sort(dim=2, stable=True)
        more = best[:, None].expand_as(used).gather(2, where[..., :n])
        fits = left[..., :n] == 0
        parent = torch.arange(self.best_points, device=best.device)[:, None].expand(-1, n).flatten()
        turns = torch.arange(self.width, device=best.device)
        at = turns.clamp(max=len(parent) - 1)
        return s.points[:, parent[at]], more.flatten(1)[:, at], fits.flatten(1)[:, at] & (turns < len(parent))

    def _changed(self, points: Tensor, change: Tensor, use: Tensor, s: State, d: Domain) -> Tensor:
        """Return points (N, K, ...) each with one more change where `use` says so; what rules ask for joins in."""
        features = s.values.shape[1]
        flat = points.expand(-1, change.shape[1], *[-1] * (points.ndim - 2))
        by_sites = flat.reshape(*change.shape, features, -1)
        where = s.site.gather(1, change)[..., None, None].expand(-1, -1, features, 1)
        new = s.values.gather(2, change[:, None].expand(-1, features, -1)).transpose(1, 2)[..., None]
        value = torch.where(use[..., None, None], new, by_sites.gather(3, where))
        found = by_sites.scatter(3, where, value).view_as(flat)

        def order() -> Tensor:  # in which features join where the change breaks a rule
            keys = d.partners(s.partner.gather(1, change)).view_as(by_sites)
            return keys.scatter(3, where, torch.inf).view_as(flat)

        return d.complete(found, order)

    def _breaking(self, every: Moves, d: Domain) -> Tensor:
        """Return which single changes break a rule, (N, M): only for them it matters which feature joins."""
        values, alone = every.value, (every.partner == 0).nonzero().squeeze(1)
        clean, found = d.by_site(d.x)[:, None], []
        for some in torch.split(alone, self.width):
            where = every.site[some][:, None, None].expand(len(d), -1, values.shape[1], 1)
            points = clean.expand(-1, len(some), -1, -1).scatter(3, where, values[..., some].transpose(1, 2)[..., None])
            points = points.reshape(len(d), len(some), *d.x.shape[1:])
            found.append((d.snap(points) != points).flatten(2).any(2))
        return torch.cat(found, 1)[:, (every.partner == 0).cumsum(0) - 1]

    def _changes(self, t: Tensor) -> Tensor:
        """Return how many changes points have, t steps after the singles."""
        return torch.where(t < 0, 1, torch.where(t < self.pairs, 2, t + 3 - self.pairs))

    def _judged(self, s: State, points: Tensor, margins: Tensor, t: Tensor, oracle: Oracle) -> State:
        """Keep the best points of the pairs so far, or of this step after them, and end rows that cannot improve."""
        d, incumbents = oracle.domain, oracle.incumbents
        older = torch.where((t > 0)[:, None] & (t < self.pairs)[:, None], s.points_m, torch.inf)
        both = torch.cat([older, margins], 1)
        top = both.argsort(dim=1, stable=True)[:, : self.best_points]
        every = torch.arange(len(t), device=t.device)[:, None]
        after = t >= 0
        # How many changes the points of the next step have.
        fewest = self._changes(t + 1)
        best = torch.cat([s.points, points], 1)[every, top]
        return replace(
            s,
            points=torch.where(ops.per_row(after, best), best, s.points),
            points_m=torch.where(after[:, None], both.gather(1, top), s.points_m),
            done=(incumbents.best_cost <= d.least(fewest)) | (fewest > d.sites) | (after & both.amin(1).isinf()),
        )


@dataclass(frozen=True, kw_only=True)
class CornerAt(Corner):
    """Do the same within a budget: ask about no point with more changes. With one change the answer is exact over what
    is tried: no single change to an end of the box fools a sample that it does not fool.
    """

    name: str = "corner-at"

    kind: ClassVar[Literal["minimum-norm", "budget"]] = "budget"

    def _judged(self, s: State, points: Tensor, margins: Tensor, t: Tensor, oracle: Oracle) -> State:
        """End rows whose next points would have more changes than the budget, too."""
        found, k = super()._judged(s, points, margins, t, oracle), oracle.problem.budget or 0
        return replace(found, done=found.done | (self._changes(t + 1) > k))
