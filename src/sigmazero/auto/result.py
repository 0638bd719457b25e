"""Hold the result of a cascade: what each attack did, each sample's best point, and findings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from sigmazero.attacks.corner import Corner
from sigmazero.auto.members import Cascade
from sigmazero.core.attack import Attack
from sigmazero.core.domain import COST_ROUNDING
from sigmazero.core.findings import Finding, render
from sigmazero.core.metrics import average, fitting_costs, fitting_ks
from sigmazero.core.problem import Problem
from sigmazero.core.result import Outcome, Result
from sigmazero.report.findings import masked
from sigmazero.report.notebook import with_samples

UNKNOWN = -2  # the prediction of a sample that was not run; −1 is one that is not finite
CHANNELS = 4  # features of a site whose corners `corner` tries in every combination


@dataclass
class MemberRun:
    """The results of one attack of a cascade; tensors have one entry for each sample of the evaluation.

    attacked  whether it was run on the sample
    l0        changes of its own point: infinite where it found none within the budget, or was not run
    cost      the same in what the changes cost
    queries   forward and backward passes
    """

    attack: Attack
    attacked: Tensor
    l0: Tensor
    cost: Tensor
    queries: Tensor
    seconds: float = 0.0


@dataclass
class CascadeResult:
    """One evaluation; it grows while the cascade runs.

    runs      what each attack found, in their order
    best      a `Result` with each sample's best point: the cheapest, which has the fewest changes unless a space has
              costs. A sample that was not fooled has its clean input
    left_out  attacks that cannot honour the space, or have too few steps for inputs so large
    findings  what makes the figures doubtful
    """

    cascade: Cascade
    problem: Problem = field(repr=False)
    runs: list[MemberRun] = field(repr=False)
    best: Result
    left_out: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @staticmethod
    def start(cascade: Cascade, problem: Problem, attacks: Sequence[Attack]) -> CascadeResult:
        """Return the result of an evaluation before it has begun."""
        n, never = len(problem), math.inf

        def blank(value: float, dtype: torch.dtype) -> Tensor:
            return torch.full((n,), value, dtype=dtype, device="cpu")

        columns: dict[str, Any] = {name: blank(never, torch.float32) for name in ("l0", "l0_pixel", "cost")}
        columns |= {name: blank(UNKNOWN, torch.int64) for name in ("prediction", "clean_prediction")}
        best = Result(
            **columns,
            x_adv=problem.x.detach().to("cpu", copy=True),
            success=blank(False, torch.bool),
            forwards=blank(0, torch.int64),
            backwards=blank(0, torch.int64),
            step_found=blank(-1, torch.int64),
            margin=blank(math.nan, torch.float64),
            outcome=blank(int(Outcome.NOT_FOUND), torch.int8),
            ids=problem.ids.cpu(),
            unit=problem.unit,
            budget=problem.budget,
            x=problem.x.detach().cpu(),
        )
        runs = []
        for attack in attacks:
            l0, cost = (blank(never, torch.float64) for _ in range(2))
            runs.append(MemberRun(attack, blank(False, torch.bool), l0, cost, blank(0, torch.int64)))
        left_out = tuple(attack.name for attack in cascade.attacks if attack not in attacks)
        return CascadeResult(cascade, problem, runs, best, left_out)

    def add(self, place: int, rows: Tensor, result: Result) -> None:
        """Take over what the attack at a place found for some samples."""
        run, best, found, rows = self.runs[place], self.best, result.to("cpu"), rows.cpu()
        cost = torch.where(found.success, found.cost.double(), math.inf)
        run.attacked[rows] = True
        run.l0[rows] = torch.where(found.success, found.changes.double(), math.inf)
        run.cost[rows] = cost
        run.queries[rows] = found.forwards + found.backwards
        run.seconds += result.seconds
        best.forwards[rows] += found.forwards
        best.backwards[rows] += found.backwards
        best.given_up[rows] += found.given_up
        best.clean_prediction[rows] = found.clean_prediction
        best.outcome[rows[found.clean_prediction == -1]] = int(Outcome.NON_FINITE)
        won = cost < best.cost[rows].double()
        better = found.take(won)
        names = ("x_adv", "success", "l0", "l0_pixel", "cost", "step_found", "margin", "outcome", "prediction")
        for name in names:
            column: Tensor = getattr(best, name)
            column[rows[won]] = getattr(better, name).to(column)
        left = rows[~best.success[rows]]
        best.prediction[left] = best.clean_prediction[left]

    def finished(self, findings: Sequence[Finding]) -> CascadeResult:
        """Return the result with the findings of the model, and those that the figures give."""
        every = (*findings, *self._masked())
        errors = tuple(finding for finding in every if finding.severity == "error")
        best = replace(self.best, findings=errors, seconds=sum(run.seconds for run in self.runs))
        return replace(self, findings=every, best=best)

    def asking(self, place: int) -> Tensor:
        """Return the samples that the attack at a place is for: those that the ones before it did not settle.

        With a budget a sample is settled once it is fooled; without one, by a point that costs as little as any can.
        """
        if self.eps is None:
            least = float(self.problem.domain.user_costs.min()) * (1 + COST_ROUNDING)
            left = self._least("cost", self.runs[:place]) > least
        else:
            left = self._least("l0", self.runs[:place]) > self.eps
        return (left & (self.best.clean_prediction != -1)).nonzero().squeeze(1)

    def not_fooled(self, k: float) -> tuple[int, int]:
        """Return how many samples stay right at k changes: at least those that every attack has tried, at most all
        that are not fooled so far.
        """
        left = (self._least("l0") > k) & (self.best.clean_prediction != -1)
        return int((left & self.runs[-1].attacked).sum()), int(left.sum())

    def _least(self, name: Literal["l0", "cost"], runs: Sequence[MemberRun] | None = None) -> Tensor:
        """Return the fewest changes, or the least cost, of each sample over some attacks; infinite without any."""
        columns = [getattr(run, name) for run in (self.runs if runs is None else runs)]
        return torch.stack([torch.full((len(self),), math.inf, dtype=torch.float64, device="cpu"), *columns]).amin(0)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.best)

    @property
    def eps(self) -> int | None:
        """Return the budget; None if the fewest changes were looked for."""
        return self.problem.budget

    @property
    def members(self) -> tuple[str, ...]:
        """Return the names of the attacks that ran."""
        return tuple(run.attack.name for run in self.runs)

    @property
    def right(self) -> Tensor:
        """Return which clean inputs the model classifies correctly, with finite logits."""
        return (self.best.outcome != Outcome.ALREADY) & (self.best.outcome != Outcome.NON_FINITE)

    @property
    def seen(self) -> Tensor:
        """Return which inputs the model was asked about: all, unless the cascade was stopped."""
        return self.best.clean_prediction != UNKNOWN

    @property
    def clean_accuracy(self) -> float:
        """Return the share of clean inputs classified correctly, of those that the model was asked about."""
        return average(self.right[self.seen])

    @property
    def found_by(self) -> list[str | None]:
        """Return the attack whose point each sample has; None for one that was wrong already, or never fooled."""
        first = torch.stack([run.cost for run in self.runs]).argmin(0).tolist()
        fooled = (self.best.outcome == Outcome.FOUND).tolist()
        return [self.members[place] if hit else None for place, hit in zip(first, fooled, strict=True)]

    def robust_accuracy(self, k: float | None = None, after: int | None = None) -> float:
        """Return the share of samples that are right and stay so at k changes.

        `after` counts the first attacks only. With a budget only that number of changes was searched: another k is
        refused.
        """
        k = self.eps if k is None else k
        if k is None:
            raise ValueError("robust_accuracy(k) needs a number of changes: the cascade had no budget")
        if self.eps not in (None, k):
            raise ValueError(f"k={k} was not searched, only eps={self.eps}; with eps=None every k is answered")
        return average(self.right & (self._least("l0", self.runs[:after]) > k))

    def robust_accuracy_at_cost(self, cost: float, after: int | None = None) -> float:
        """Return the share of samples that are right and stay so under changes that cost at most `cost` together."""
        if self.eps is not None:
            searched = f"only eps={self.eps} changes were searched"
            raise ValueError(f"cost={cost}: {searched}; with eps=None costs are answered")
        most = cost + abs(cost) * COST_ROUNDING if cost < math.inf else cost
        return average(self.right & (self._least("cost", self.runs[:after]) > most))

    @property
    def ks(self) -> tuple[float, ...]:
        """Return the numbers of changes that tables are about."""
        return (self.eps,) if self.eps is not None else fitting_ks(self.problem.x.shape[1:], self.problem.sites)

    @property
    def costs(self) -> tuple[float, ...]:
        """Return the costs that tables are about; none where every change costs 1 or there is a budget."""
        domain = self.problem.domain
        return fitting_costs(domain.user_costs.double().cpu().numpy()) if domain.priced and self.eps is None else ()

    @property
    def most(self) -> int:
        """Return the most queries that one sample may cost."""
        return sum(self.cascade.most_queries(run.attack, self.problem) for run in self.runs)

    @property
    def exact(self) -> str:
        """Say where the figure is exact: every change of one site to ends of the box was tried, or it had fallen."""
        tried = [run.attacked for run in self.runs if isinstance(run.attack, Corner)]
        domain = self.problem.domain
        if not tried or self.eps not in (None, 1) or domain.needs_exploring or not len(self):
            return ""
        known = torch.stack(tried).any(0) | (self._least("l0") <= 1) | (self.best.clean_prediction == -1)
        if not bool(known.all()) or domain.features // domain.sites > CHANNELS:
            return ""
        what = "pixel" if self.problem.unit == "pixel" else "feature"
        return f"exact at one {what} over corners: every change of one {what} to ends of the box was tried"

    def _masked(self) -> list[Finding]:
        """Compare attacks without gradients with those that use them; one that tries every change may find more."""
        guided = [run for run in self.runs if run.attack.needs == "gradients"]
        blind = [run for run in self.runs if run.attack.needs != "gradients" and not isinstance(run.attack, Corner)]
        if not guided or not blind:
            return []
        tried = torch.stack([run.attacked for run in guided]).all(0)
        least, led = self._least("l0", blind), self._least("l0", guided)
        by = " or ".join(run.attack.name for run in blind)
        found = []
        for k in self.ks if self.eps is not None else (*self.ks, math.inf):
            one, other = (torch.where(each <= k, each, math.inf) for each in (least, led))
            found += [masked(torch.where(tried, one, math.inf).numpy(), other.numpy(), by)]
        return sorted((each for each in found if each is not None), key=lambda each: each.severity)[:1]  # errors first

    def table(self) -> list[dict[str, str]]:
        """Return a row of texts for each attack: what is left after it, and what it cost."""
        rows = []
        for place, run in enumerate(self.runs):
            on, after, row = run.attacked, place + 1, {"member": run.attack.name}
            row |= {f"robust accuracy at {k:g}": f"{self.robust_accuracy(k, after):.1%}" for k in self.ks}
            for cost in self.costs:
                row[f"robust accuracy at cost {cost:g}"] = f"{self.robust_accuracy_at_cost(cost, after):.1%}"
            gained = f"{int(self.gained(place).sum())} of {int((on & self.right).sum())}"
            row["improved" if self.eps is None else "fooled"] = gained
            row["queries per sample"] = f"{average(run.queries[on]) if bool(on.any()) else 0.0:.0f}"
            rows.append(row | {"seconds": f"{run.seconds:.1f}"})
        return rows

    def line(self, place: int) -> str:
        """Return what the attack at a place did, as a line."""
        (_, name), *figures = self.table()[place].items()
        return f"{name}: " + ", ".join(f"{figure} {text}" for figure, text in figures)

    def gained(self, place: int) -> Tensor:
        """Return the samples for which the attack at a place has a better point than those before it."""
        run = self.runs[place]
        return run.attacked & self.right & (run.cost < self._least("cost", self.runs[:place]))

    @property
    def announcement(self) -> str:
        """Return what the evaluation may cost, which is known before it starts."""
        return f"{self.cascade}: {len(self)} samples, at most {self.most:,} queries for each"

    @property
    def headline(self) -> str:
        """Return the question, and how accurate the model is without an attack."""
        unit = "pixels" if self.problem.unit == "pixel" else "features"
        goal = f"at most {self.eps} {unit}" if self.eps is not None else f"as few {unit} as possible"
        goal += ", each at its cost" if self.costs else ""
        without = f" (without {', '.join(self.left_out)}: too large, or no such spaces)" if self.left_out else ""
        part = "" if bool(self.seen.all()) else f" of the {int(self.seen.sum())} asked about"
        clean = f"clean accuracy {self.clean_accuracy:.1%}{part}"
        return f"{self.cascade}{without}, {len(self)} samples, {goal}: {clean}"

    def _repr_html_(self) -> str:
        """Show the table of the attacks, some samples and the findings in a notebook."""
        return with_samples(self.headline, self.table(), self.best, [render([each]) for each in self.findings])

    def __str__(self) -> str:
        """Return a line per attack, then the findings."""
        lines = [self.announcement, self.headline, *(self.line(place) for place in range(len(self.runs)))]
        lines += [self.exact] if self.exact else []
        return "\n".join(lines + ([render(list(self.findings))] if self.findings else []))
