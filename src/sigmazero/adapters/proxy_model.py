"""A model for attacks that are not ours: it answers as the oracle's model does, and counts every query.

Every row, forwards or backwards, is counted for the sample it belongs to, and the best point is remembered.
"""

from typing import Any

import torch
from torch import Tensor, nn

from sigmazero.core.domain import Domain
from sigmazero.core.oracle import Oracle, widened


class Enough(BaseException):
    """The samples have their answer, or have used all their queries, so the attack must stop.

    It is no `Exception`, so that no attack takes it for a failure of its own and goes on.
    """


class ProxyModel(nn.Module):
    """The model for the samples `rows` of an oracle's problem; inputs are in units of the box.

    queries  the most queries of a sample, forwards and backwards, those before included; None for no limit
    """

    def __init__(self, oracle: Oracle, rows: Tensor, queries: int | None = None) -> None:
        super().__init__()
        self.oracle, self.rows, self.queries = oracle, rows, queries
        self.clean = oracle.domain.x[rows]
        # Attacks ask a module's parameters where it is.
        self.place = nn.Parameter(self.clean.new_zeros(1), requires_grad=False)
        self.dead_end = False  # whether a gradient could have been asked for where the model has none

    def forward(self, points: Tensor) -> Tensor:
        """Return the logits of points (M, ...), with gradients where the model has them."""
        if points.shape[1:] != self.clean.shape[1:]:
            shapes = f"{tuple(points.shape)}, expected (any number, {', '.join(map(str, self.clean.shape[1:]))})"
            raise ValueError(f"the attack asked about inputs of shape {shapes}")
        points = points.to(self.clean)
        rows = self.rows[self._samples_of(points.detach())]
        self._stop(rows, 2 if points.requires_grad else 1)
        return self._answer(points, rows)

    def _answer(self, points: Tensor, rows: Tensor) -> Tensor:
        problem = self.oracle.problem.take(rows)
        inputs = _to_user(points, problem.domain)
        parts = [self.oracle.model(part) for part in torch.split(inputs, self.oracle.chunk)]
        logits = problem.goal.aim(widened(torch.cat(parts) if len(parts) > 1 else parts[0].clone(), points))
        self.oracle.count_foreign(rows, problem.domain.allowed(points.detach()), logits.detach())
        self.dead_end = self.dead_end or (points.requires_grad and not logits.requires_grad)
        if logits.requires_grad:
            logits.register_hook(lambda _: self.oracle.count_backwards(rows))  # type: ignore[no-untyped-call]
        return logits.to(points.dtype)

    def returned(self, points: Tensor) -> Tensor:
        """Return the legal points nearest to those that an attack returned, one per sample.

        The model is asked about those that are not the best known already, as the attack may not have asked, where a
        query is left.
        """
        domain = self.oracle.domain.take(self.rows)
        points = domain.allowed(points)
        new = (domain.l0(points) > 0) & (points != self.oracle.incumbents.best[self.rows]).flatten(1).any(1)
        if self.queries is not None:
            new = new & (self._spent() < self.queries)
        if bool(new.any()):
            with torch.no_grad():
                self._answer(points[new], self.rows[new])
        return points

    def __deepcopy__(self, _: Any) -> "ProxyModel":
        """Return the same object: some libraries copy the model they get, and queries of a copy count as well."""
        return self

    def _samples_of(self, points: Tensor) -> Tensor:
        """Return the sample that each point belongs to.

        As many points as samples come in their order. Otherwise, as when an attack goes on with some of them or cuts
        them up, a point belongs to the sample from which it differs in the fewest features.
        """
        count = len(self.rows)
        if count == 1:
            return torch.zeros(len(points), dtype=torch.int64, device=points.device)
        if len(points) == count:
            return torch.arange(count, device=points.device)
        apart = [(point != self.clean).flatten(1).sum(1).argmin() for point in points]
        return torch.stack(apart) if apart else torch.zeros(0, dtype=torch.int64, device=points.device)

    def _spent(self) -> Tensor:
        """Return the queries of each sample so far."""
        return (self.oracle.incumbents.forwards + self.oracle.incumbents.backwards)[self.rows]

    def _stop(self, rows: Tensor, each: int) -> None:
        """Stop where every sample has points within the budget, or where one has too few queries left.

        each  queries of a point: its gradient, where one may be asked for, is another
        """
        problem, incumbents = self.oracle.problem, self.oracle.incumbents
        enough = -1 if problem.budget is None else min(problem.budget, problem.sites)
        if bool((incumbents.best_l0[self.rows] <= enough).all()):
            raise Enough
        if self.queries is not None:
            wanted = each * (rows[:, None] == self.rows).sum(0)
            if bool((self._spent() + wanted > self.queries).any()):
                raise Enough


class _ToUser(torch.autograd.Function):
    """From search coordinates to the user's units, and gradients the other way, as if each point were legal."""

    @staticmethod
    def forward(ctx: Any, points: Tensor, domain: Domain) -> Tensor:
        ctx.domain = domain
        user = domain.to_user(domain.allowed(points))
        return user.clone() if user is points else user

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        domain: Domain = ctx.domain
        return domain.pull(slopes[0]), None


def _to_user(points: Tensor, domain: Domain) -> Tensor:
    user: Tensor = _ToUser.apply(points, domain)  # type: ignore[no-untyped-call]
    return user
