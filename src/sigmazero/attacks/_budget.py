"""What the fixed-budget attacks share: a budget per row, and rows that can start again at any step.

A row of age 0 draws its starting point inside its next step, so `begin` costs next to nothing. To start some rows again
(for a restart, or with another budget) fresh rows are written over them, and no value has to be read on the host.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from sigmazero.core.attack import Attack
from sigmazero.core.domain import Domain
from sigmazero.core.ops import each, per_row
from sigmazero.core.oracle import Oracle


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
        """Rows of age 0 with these budgets: no query, no draw."""

    def init(self, oracle: Oracle) -> Any:
        """Every row has the budget of the question."""
        most = min(oracle.problem.budget or 0, oracle.domain.sites)
        return self.begin(oracle, torch.full_like(oracle.goal.y, most))


def start_again(rows: Tensor, fresh: Any, state: Any) -> Any:
    """The state with some of its rows (a boolean mask) replaced by fresh ones."""
    return each(lambda new, old: torch.where(per_row(rows, old), new, old), fresh, state)


def movable(d: Domain) -> Tensor:
    """Which features box and mask allow to change, as (rows, features of a site, sites)."""
    return d.by_site(d.lower < d.upper)
