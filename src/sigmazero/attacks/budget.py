r"""Any fixed-budget attack as a minimum-norm attack: search the smallest budget k at which it succeeds.

A sample starts at some budget. A try that succeeds with n changes makes n − 1 the new upper end; one that ends without
success makes k + 1 the new lower end. The next budget lies in the middle, or is doubled while nothing was found. A
sample that succeeds goes on with its next budget at once, whatever the others do. An attack that failed at k may
succeed there in another try, so the answer is an upper bound, like every attack's.

The attacks are PGD-l0 (https://arxiv.org/abs/1909.05040), Sparse-RS (https://arxiv.org/abs/2006.12834) and sPGD
(https://arxiv.org/abs/2405.05075).

In a space of rows a point that was asked about before costs no query, and few features have few points. So there the
search takes more steps, and tries one change less again and again, until it has asked as often as it was given steps.

    k    budget of the current try      low, high    smallest and largest budget still worth a try

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> result = sz.get("pgd-l0-min", steps=100).run(model, torch.full((1, 4), 0.5), torch.tensor([0]))
>>> int(result.l0[0])
2
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor

from sigmazero.core import ops
from sigmazero.core.answers import STEPS_FACTOR
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Domain
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count, Kind
from sigmazero.core.problem import Problem


@dataclass(kw_only=True)
class State:
    """One row per sample: k, the sites it may change, and its steps since it started; the rest belongs to `minimum`."""

    k: Tensor
    age: Tensor
    low: Tensor | None = None
    high: Tensor | None = None
    done: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class BudgetAttack(Attack):
    """An attack that looks for any adversarial point with at most k changes."""

    kind: ClassVar[Literal["minimum-norm", "budget"]] = "budget"
    finite_box: ClassVar[bool] = True

    @abstractmethod
    def begin(self, oracle: Oracle, k: Tensor) -> Any:
        """Return rows of age 0 with these budgets: no query, no draw."""

    def init(self, oracle: Oracle) -> Any:
        """Give every row the budget of the question."""
        most = min(oracle.problem.budget or 0, oracle.domain.sites)
        return self.begin(oracle, torch.full_like(oracle.goal.y, most))


def movable(d: Domain) -> Tensor:
    """Return which features box and mask allow to change, as (rows, features of a site, sites)."""
    return d.by_site(d.lower < d.upper)


@dataclass(frozen=True, kw_only=True)
class MinimumNorm(Attack):
    """Run an attack within a budget again and again: a search by halves finds the smallest budget at which it succeeds.
    All tries share the steps.

    In a run with a budget, the first budget to try is that one. `persistent` is fair in a comparison at equal steps:
    further tries draw other random numbers.
    """

    name: str
    attack: Annotated[
        BudgetAttack,
        Kind(BudgetAttack, "an attack that searches within a fixed budget"),
        "the attack within a budget that is run",
    ]
    steps: Annotated[Count, "steps of the attack inside, over all tries"] = 1000
    rounds: Annotated[Count, "a try has steps / rounds steps"] = 10
    first_budget: Annotated[Count, "the first budget to try"] = 100
    persistent: Annotated[bool, "spend steps that are left on more tries at one change less"] = False

    asks: ClassVar[str] = "as its attack, `steps` steps in all"
    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        """Take over what the attack inside says of itself, and its version."""
        super().__post_init__()
        for name in ("goals", "needs", "capturable", "finite_box", "paper"):
            object.__setattr__(self, name, getattr(self.attack, name))
        # Raised with the attack's version, and with the search's own.
        object.__setattr__(self, "version", self.attack.version + type(self).version - 1)

    @cached_property
    def inner(self) -> BudgetAttack:
        """Return the attack as one try runs it."""
        share = self.steps * self.attack.steps // (self.rounds * self.attack.iterations)
        return replace(self.attack, steps=max(1, share))

    def phases(self, problem: Problem | None = None) -> tuple[Attack, ...]:
        """Return the search itself; for rows in a space a longer one with as many queries."""
        if problem is None or not problem.domain.needs_exploring or problem.x.ndim != 2:
            return (self,)
        each = 1 if self.needs == "scores" else 2
        mine = self.parameters() | {"steps": STEPS_FACTOR * self.steps, "persistent": True}
        return (LongMinimumNorm(name=self.name, **mine, each=each, queries=each * self.steps + problem.overhead),)

    def init(self, oracle: Oracle) -> Any:
        """Begin at the first budget; every budget is possible."""
        sites = oracle.domain.sites
        first = torch.full_like(oracle.goal.y, min(oracle.problem.budget or self.first_budget, sites))
        return self.begin(oracle, first, torch.ones_like(first), torch.full_like(first, sites))

    def begin(self, oracle: Oracle, k: Tensor, low: Tensor, high: Tensor) -> Any:
        """Return rows at the start of a try."""
        return replace(self.inner.begin(oracle, k), low=low, high=high, done=(low > high) | (high < 1))

    def step(self, i: Tensor, state: Any, oracle: Oracle) -> Any:
        """Take a step of the attack; rows whose try has ended begin the next one."""
        s = self.inner.step(i, state, oracle)
        d, best = oracle.domain, oracle.incumbents.best_l0
        won = best <= s.k
        lost = ~won & (s.age >= self.inner.iterations)
        low = torch.where(lost, s.k + 1, s.low)
        high = torch.minimum(s.high, best - 1)
        if d.weighted:  # another single change may cost less
            high = torch.where(oracle.incumbents.best_cost <= d.least(1), high, high.clamp(min=1))
        if self.persistent:
            low = torch.minimum(low, high)
        k = torch.where(best <= d.sites, (low + high) // 2, (2 * s.k).clamp(max=d.sites))
        return ops.choose(won | lost, self.begin(oracle, k, low, high), s)


@dataclass(frozen=True, kw_only=True)
class LongMinimumNorm(MinimumNorm):
    """The same search in a space. It may take more steps than its queries pay for: a point asked before costs none.

    each     queries of a step at a new point
    queries  most of a sample, checks included
    """

    each: int
    queries: int

    @property
    def step_cost(self) -> int:
        """Return the queries of a step."""
        return self.each
