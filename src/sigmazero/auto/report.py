"""What a cascade found, and how far it can be believed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sigmazero.attacks.corner import Corner
from sigmazero.auto.progress import UNKNOWN, CascadeState, fewest
from sigmazero.auto.versions import Version, most_queries
from sigmazero.core.attack import Attack
from sigmazero.core.domain import COST_ROUNDING
from sigmazero.core.findings import Finding, coded, render
from sigmazero.core.metrics import DEFAULT_KS, average, fitting_costs, fitting_ks
from sigmazero.core.problem import Problem
from sigmazero.core.result import Outcome, Result

LUCK, SHARE = 2, 0.01  # so many samples, or this share of them, may fall to a random search by luck
MASKED = 0.1  # from this share on the gradients do mislead
WHOLE = 4  # features of a site whose corners `corner` tries in every combination


@dataclass(frozen=True)
class CascadeReport:
    """One evaluation. `result` has a row per sample; `l0`, `queries` and `attacked` have one per member and sample.

    `l0` counts the changes of each member's own points: infinite where it found none within the budget or was not
    asked. `cost` is the same in what the changes cost, None where each costs 1. `findings` are the warnings that were
    issued, `left_out` the members that cannot honour the space or have too few steps for inputs so large, `ks` and
    `costs` what tables are about. `exact` says where the figure is more than an upper bound, `most` how many queries
    the members may ask about one sample.
    """

    version: str
    members: tuple[str, ...]
    result: Result
    l0: Tensor
    queries: Tensor
    attacked: Tensor
    seconds: tuple[float, ...]
    findings: tuple[Finding, ...] = ()
    cost: Tensor | None = None
    left_out: tuple[str, ...] = ()
    ks: tuple[float, ...] = DEFAULT_KS
    costs: tuple[float, ...] = ()
    exact: str = ""
    most: int = 0

    @property
    def eps(self) -> int | None:
        """The budget; None if the fewest changes were looked for."""
        return self.result.budget

    @property
    def right(self) -> Tensor:
        """Which clean inputs the model classifies correctly, with finite logits."""
        return (self.result.outcome != Outcome.ALREADY) & (self.result.outcome != Outcome.NON_FINITE)

    @property
    def clean_accuracy(self) -> float:
        """Share of the clean inputs that are classified correctly, of those that were asked about."""
        return average(self.right[self.seen])

    @property
    def seen(self) -> Tensor:
        """Which inputs the model was asked about: all of them, unless the outcome was certain before."""
        return self.result.clean_prediction != UNKNOWN

    @property
    def found_by(self) -> list[str | None]:
        """The member whose point each sample has; None for one that was wrong from the start or never fooled."""
        first = self._worth.argmin(0).tolist()
        fooled = (self.result.outcome == Outcome.FOUND).tolist()
        return [self.members[member] if hit else None for member, hit in zip(first, fooled, strict=True)]

    @property
    def _worth(self) -> Tensor:
        """By what points are compared."""
        return self.l0 if self.cost is None else self.cost

    def robust_accuracy_at_cost(self, cost: float, after: int | None = None) -> float:
        """Share of the samples that are right and stay so under changes that cost at most so much together."""
        if self.eps is not None:
            raise ValueError(
                f"cost={cost}: only eps={self.eps} changes were searched; with eps=None costs are answered"
            )
        most = cost + abs(cost) * COST_ROUNDING if cost < math.inf else cost
        return average(self.right & (fewest(self._worth[:after]) > most))

    def robust_accuracy(self, k: float | None = None, after: int | None = None) -> float:
        """Share of the samples that are right and stay so under k changes; `after` asks the first so many members only.

        With a fixed budget nothing else was searched: k is that budget, and another one is refused.
        """
        if k is None:
            k = self.eps
        if k is None:
            raise ValueError("robust_accuracy(k) needs a number of changes: the cascade had no budget")
        if self.eps not in (None, k):
            raise ValueError(f"k={k} was not searched, only eps={self.eps}; with eps=None every k is answered")
        return average(self.right & (fewest(self.l0[:after]) > k))

    def rows(self) -> list[dict[str, str]]:
        """A table of texts, one line per member: what is left after it, and what it cost."""
        return [{"member": name, **self._figures(member)} for member, name in enumerate(self.members)]

    def line(self, member: int) -> str:
        """What one member did, in words."""
        return f"{self.members[member]}: " + ", ".join(f"{name} {text}" for name, text in self._figures(member).items())

    def _figures(self, member: int) -> dict[str, str]:
        asked, before = self.attacked[member], fewest(self._worth[:member])
        gained = asked & self.right & (self._worth[member] < before)
        queries = average(self.queries[member][asked]) if bool(asked.any()) else 0.0
        shown: Sequence[float] = self.ks if self.eps is None else (self.eps,)
        return {
            **{f"robust accuracy at {k:g}": f"{self.robust_accuracy(k, member + 1):.1%}" for k in shown},
            **{
                f"robust accuracy at cost {cost:g}": f"{self.robust_accuracy_at_cost(cost, member + 1):.1%}"
                for cost in (self.costs if self.eps is None else ())
            },
            "improved" if self.eps is None else "fooled": f"{int(gained.sum())} of {int((asked & self.right).sum())}",
            "queries per sample": f"{queries:.0f}",
            "seconds": f"{self.seconds[member]:.1f}",
        }

    @property
    def announcement(self) -> str:
        """What the evaluation may cost, which is known before it starts."""
        return f"{self.version}: {len(self.result)} samples, at most {self.most:,} queries for each"

    @property
    def headline(self) -> str:
        """The question, and how accurate the model is without an attack."""
        unit = "pixels" if self.result.unit == "pixel" else "features"
        goal = f"at most {self.eps} {unit}" if self.eps is not None else f"as few {unit} as possible"
        goal += "" if self.cost is None or self.eps is not None else ", each at its cost"
        without = f" (without {', '.join(self.left_out)}: too large, or no such spaces)" if self.left_out else ""
        asked = "" if bool(self.seen.all()) else f" of the {int(self.seen.sum())} asked about"
        clean = f"clean accuracy {self.clean_accuracy:.1%}{asked}"
        return f"{self.version}{without}, {len(self.result)} samples, {goal}: {clean}"

    def __str__(self) -> str:
        """A line per member, then the warnings."""
        lines = [self.announcement, self.headline, *(self.line(member) for member in range(len(self.members)))]
        lines += [self.exact] if self.exact else []
        return "\n".join(lines + ([render(list(self.findings))] if self.findings else []))


def make_report(
    version: Version, members: Sequence[Attack], progress: CascadeState, problem: Problem, left_out: Sequence[Attack]
) -> CascadeReport:
    """All that the progress of a cascade says."""
    return CascadeReport(
        version=str(version),
        members=tuple(member.name for member in members),
        result=progress.result(problem),
        l0=progress.l0.clone(),
        queries=progress.forwards + progress.backwards,
        attacked=progress.done.clone(),
        seconds=tuple(progress.seconds.tolist()),
        findings=tuple(_masked(members, progress)),
        cost=progress.cost.clone() if problem.domain.priced else None,
        left_out=tuple(member.name for member in left_out),
        ks=fitting_ks(problem.x.shape[1:], problem.sites),
        costs=fitting_costs(problem.domain.user_costs.double().cpu().numpy()) if problem.domain.priced else (),
        exact=_exact(members, progress, problem),
        most=most_queries(members, problem, version.draws),
    )


def _masked(members: Sequence[Attack], progress: CascadeState) -> list[Finding]:
    """A random search should not find what gradients cannot, unless the gradients mislead.

    One that asks about every change is no random search: with few changes it may well find more.
    """
    uses = torch.tensor([member.needs == "gradients" for member in members], device="cpu")
    blind = torch.tensor(
        [not (member.needs == "gradients" or isinstance(member, Corner)) for member in members], device="cpu"
    )
    tried = progress.done[uses].all(0) & bool(uses.any())
    beaten = int((tried & (fewest(progress.l0[blind]) < fewest(progress.l0[uses]))).sum())
    n = progress.l0.shape[1]
    if beaten <= max(LUCK, SHARE * n):
        return []
    detail = f"{beaten} of {n} samples ({beaten / n:.1%}) fell to fewer changes without gradients than with them."
    fix = "look for rounding, saturation or randomness in the model, and attack a differentiable stand-in for it"
    return [coded("SZ014", detail, fix, "error" if beaten > MASKED * n else "warning")]


def _exact(members: Sequence[Attack], progress: CascadeState, problem: Problem) -> str:
    """What is known for certain: every single change to an end of the box was asked about, or its sample had fallen."""
    alone = [place for place, member in enumerate(members) if isinstance(member, Corner)]
    if not alone or problem.budget not in (None, 1) or problem.domain.needs_exploring or not len(problem):
        return ""
    asked = progress.done[alone].any(0) | (fewest(progress.l0) <= 1) | (progress.clean_prediction == -1)
    if not bool(asked.all()) or problem.domain.features // problem.sites > WHOLE:
        return ""
    what = "pixel" if problem.unit == "pixel" else "feature"
    return f"exact at one {what} over corners: every change of one {what} to ends of the box was asked about"
