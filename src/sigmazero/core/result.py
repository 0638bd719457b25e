"""What a run found, per sample."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from sigmazero.core import metrics
from sigmazero.core.domain import COST_ROUNDING, Unit
from sigmazero.core.findings import Finding
from sigmazero.core.outcome import Outcome
from sigmazero.core.result_face import ResultFace
from sigmazero.core.text import class_name

__all__ = ["Outcome", "Result"]


@dataclass(frozen=True, repr=False)
class Result(ResultFace):
    """One row per sample, in the order of the inputs; `l0` is infinite where nothing was found.

    `success` means that the goal is reached within what was asked for, the budget included. A point beyond the budget
    is no success (its outcome is BEYOND_BUDGET), but `x_adv`, `l0` and all else are that point's, and `found` is true.

    `forwards` and `backwards` count every row that went through the model for this sample, the clean check and
    the final verification included. `step_found` is the step whose query found the point (0 for a clean input
    that is already wrong), −1 where nothing was found. `own` is the same report about the points the method returns
    by its own rule, where that is not the sparsest point it found.

    A success holds twice: as the caller's process runs the model, and in strict fp32. `given_up` is how many records of
    a sample did not, when they were asked about afresh; a sparser point was claimed for it, and is not reported.

    In a space with groups `l0` counts each of them once. `cost` is what the changes cost together: their number, unless
    the space has costs. `judged` is how often the space's `accept` was asked, which is no query of the model.

    `x` are the clean inputs, `classes` and `names` what classes and features are called, where the result knows it.
    `findings` are errors that the doctor found in the model: with them these figures may mean nothing.
    """

    x_adv: Tensor
    success: Tensor
    l0: Tensor
    l0_pixel: Tensor
    step_found: Tensor
    forwards: Tensor
    backwards: Tensor
    outcome: Tensor
    margin: Tensor
    prediction: Tensor
    clean_prediction: Tensor
    ids: Tensor
    given_up: Tensor = field(default=cast(Tensor, None))  # zeros where nobody says
    cost: Tensor = field(default=cast(Tensor, None))  # that of the changes, 1 each, where nobody says
    judged: Tensor | None = None
    unit: Unit = "feature"
    budget: int | None = None
    seconds: float = 0.0
    own: "Result | None" = None
    x: Tensor | None = None
    classes: tuple[str, ...] | None = None
    findings: tuple[Finding, ...] = ()
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Nothing was given up, and every change costs 1, where nobody says otherwise."""
        if cast(Any, self.given_up) is None:
            object.__setattr__(self, "given_up", torch.zeros_like(self.forwards))
        if cast(Any, self.cost) is None:
            object.__setattr__(self, "cost", self.changes)
        object.__setattr__(self, "names", None if self.names is None else tuple(self.names))

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.success)

    @property
    def changes(self) -> Tensor:
        """l0 in the unit the run was asked for, which is the unit of the budget."""
        return self.l0_pixel if self.unit == "pixel" else self.l0

    @property
    def found(self) -> Tensor:
        """Whether a sample has a verified adversarial point: each success, and each point beyond the budget."""
        return self.l0.isfinite()

    def samples(self, labels: Tensor | None = None) -> metrics.Samples:
        """What figures are computed from; `labels` are the true classes, which a result does not know."""
        return metrics.Samples(
            changes=_array(self.changes.double()),
            outcome=_array(self.outcome),
            forwards=_array(self.forwards),
            backwards=_array(self.backwards),
            seconds=np.full(len(self), self.seconds / max(len(self), 1)),
            clean_prediction=_array(self.clean_prediction),
            label=None if labels is None else _array(labels),
            returned=None if self.own is None else _array(self.own.changes.double()),
        )

    def asr(self, k: float = torch.inf) -> float:
        """Share of ALL samples fooled with at most k changes."""
        return self._figure("asr", k)

    def asr_at_cost(self, cost: float = torch.inf) -> float:
        """Share of ALL samples fooled with changes that cost at most so much together."""
        within = self.cost.double() <= cost + abs(cost) * COST_ROUNDING if cost < math.inf else self.found
        return float(within.double().mean()) if len(self) else math.nan

    @property
    def median_l0(self) -> float:
        """Median over all samples, failures as infinity; the mean of the two middle ones if their number is even."""
        return self._figure("median_l0")

    @property
    def mean_l0(self) -> float:
        """Mean over all samples: infinite as soon as one was not fooled."""
        return self._figure("mean_l0")

    def _figure(self, name: str, k: float = torch.inf) -> float:
        found = metrics.METRICS[name].at(k).value(self.samples())
        assert found is not None  # these need nothing that a result does not have
        return found

    def summary(self) -> dict[str, float]:
        """The figures one reports, by name: every metric of `core.metrics`, `asr` with any number of changes."""
        samples = self.samples()
        found = {name: each.at(torch.inf).value(samples) for name, each in metrics.METRICS.items() if "run" in each.of}
        return {"samples": len(self), **{name: value for name, value in found.items() if value is not None}}

    def __repr__(self) -> str:
        """One line: what one wants to know first."""
        if not len(self):
            return "<Result of 0 samples>"
        unit, s = "pixels" if self.unit == "pixel" else "features", self.summary()
        found = (
            f"{self.asr(self.budget):.1%} fooled within {self.budget} {unit}{self._beyond}"
            if self.budget is not None
            else f"{s['asr']:.1%} fooled, median l0 {_told(s['median_l0'])}, mean {_told(s['mean_l0'], '.4g')} {unit}"
        )
        return f"<Result of {len(self)} samples: {found}, {s['queries']:.0f} queries each{self._doubts}>"

    @property
    def _beyond(self) -> str:
        beyond = int((self.outcome == Outcome.BEYOND_BUDGET).sum())
        return f", {beyond} sample{'' if beyond == 1 else 's'} only beyond it" if beyond else ""

    @property
    def _doubts(self) -> str:
        return "".join(f"; {each.code}: doubtful" for each in self.findings)

    def __str__(self) -> str:
        """A line per figure, and one per finding."""
        unit = "pixels" if self.unit == "pixel" else "features"
        s = self.summary()
        within = "" if self.budget is None else f" within {self.budget} {unit}{self._beyond}"
        fooled = self.asr(torch.inf if self.budget is None else self.budget)
        lines = [
            f"{len(self)} samples, {s['already_wrong']:.1%} already wrong, {fooled:.1%} fooled in all{within}",
            # With a budget a sample ends at the first point within it: how few would do is not known.
            *(_middle(s, unit) if self.budget is None else []),
            f"per sample {s['forwards']:.1f} forwards, {s['backwards']:.1f} backwards, {s['seconds_per_sample']:.4f} s",
        ]
        if stopped := int((self.outcome == Outcome.STOPPED).sum()):
            lines.append(f"{stopped} samples are not done, since the model stopped answering: they count as not fooled")
        if records := int(self.given_up.sum()):
            rows = int((self.given_up > 0).sum())
            lines.append(f"{records} records of {rows} samples given up: fresh answers did not hold them")
        return "\n".join(lines + [f"{each.code}: {each.title}. {each.detail}" for each in self.findings])

    def class_name(self, number: int) -> str:
        """What a class is called; its number where nobody named it."""
        return class_name(self.classes, number)

    def take(self, rows: Tensor) -> "Result":
        """The same report about some of the samples, with their share of the seconds."""
        picked: dict[str, Any] = {
            f.name: v[rows] for f in fields(self) if isinstance(v := getattr(self, f.name), Tensor)
        }
        picked["seconds"] = self.seconds * len(picked["success"]) / max(len(self), 1)
        return replace(self, **picked, own=None if self.own is None else self.own.take(rows))

    @staticmethod
    def join(parts: Sequence["Result"]) -> "Result":
        """Results of consecutive batches as one."""
        first = parts[0]
        names = [f.name for f in fields(first) if isinstance(getattr(first, f.name), Tensor)]
        joined: dict[str, Any] = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
        own = [part.own for part in parts if part.own is not None]
        joined |= {"seconds": sum(part.seconds for part in parts), "own": Result.join(own) if own else None}
        return replace(first, **joined)


def _array(values: Tensor) -> Any:
    return values.detach().cpu().numpy()


def _middle(s: dict[str, float], unit: str) -> list[str]:
    return [f"median l0 {_told(s['median_l0'])}, mean l0 {_told(s['mean_l0'], '.2f')} ({unit})"]


def _told(value: float, form: str = "g") -> str:
    """A number in words; infinity by its sign, as in tables."""
    return "∞" if math.isinf(value) else format(value, form)
