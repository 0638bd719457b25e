"""The result of a run, one row per sample."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from sigmazero.core import metrics
from sigmazero.core.domain import COST_ROUNDING, Unit
from sigmazero.core.findings import Finding
from sigmazero.core.messages import class_name
from sigmazero.core.metrics import Outcome

__all__ = ["Outcome", "Result"]


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a run, one row per sample in the order of the inputs; the same for every attack and goal.

    x_adv       the verified adversarial point with the fewest changes; where there is none, the clean input
    success     whether the goal is reached within what was asked for, the budget included
    l0          how many values x_adv changes, ∞ where nothing was found; `l0_pixel` counts positions, `cost` adds up
                the costs of a space; in a space with groups `l0` counts each group once
    found       whether there is a verified point at all: each success, and each point beyond the budget
    outcome     how the sample ended, a number of `sz.Outcome`
    prediction  the class of x_adv; `clean_prediction` that of the clean input
    margin      by how much x_adv reaches the goal in the logits
    step_found  the step whose query found the point; 0 for a clean input that is already wrong, −1 for none
    forwards    forward passes of this sample, clean check and verification included; `backwards` the backward ones
    given_up    points of this sample that a fresh pass did not confirm; they are not in the result
    judged      number of calls of the space's `accept`, which are no queries of the model
    own         the same report about the points that the method returns by its own rule, where it has one

    `x` are the clean inputs; `classes` and `names` are names of classes and features, where they are known. `findings`
    are errors that the doctor found in the model: they make the figures unreliable.
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
    given_up: Tensor = field(default=cast(Tensor, None))  # zeros if not given
    cost: Tensor = field(default=cast(Tensor, None))  # the changes, 1 each, if not given
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
        """Fill in fields that are not given."""
        if cast(Any, self.given_up) is None:
            object.__setattr__(self, "given_up", torch.zeros_like(self.forwards))
        if cast(Any, self.cost) is None:
            object.__setattr__(self, "cost", self.changes)
        object.__setattr__(self, "names", None if self.names is None else tuple(self.names))

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.success)

    @property
    def changes(self) -> Tensor:
        """Return l0 in the unit of the run, which is the unit of the budget."""
        return self.l0_pixel if self.unit == "pixel" else self.l0

    @property
    def found(self) -> Tensor:
        """Return which samples have a verified adversarial point: each success, and each point beyond the budget."""
        return self.l0.isfinite()

    def samples(self, labels: Tensor | None = None) -> metrics.Samples:
        """Return the arrays of the figures; `labels` are the true classes, which a result does not have."""
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

    def asr(self, k: float | None = None) -> float:
        """Return the share of ALL samples fooled with at most k changes; without k the share of successes."""
        if k is None:
            k = math.inf if self.budget is None else self.budget
        return self._figure("asr", k)

    def asr_at_cost(self, cost: float = torch.inf) -> float:
        """Return the share of ALL samples fooled with changes that cost at most `cost` together."""
        within = self.cost.double() <= cost + abs(cost) * COST_ROUNDING if cost < math.inf else self.found
        return float(within.double().mean()) if len(self) else math.nan

    @property
    def median_l0(self) -> float:
        """Return the median over all samples, failures as infinity; of two middle samples the mean."""
        return self._figure("median_l0")

    @property
    def mean_l0(self) -> float:
        """Return the mean over all samples: infinite if one was not fooled."""
        return self._figure("mean_l0")

    def _figure(self, name: str, k: float = torch.inf) -> float:
        found = metrics.METRICS[name].at(k).value(self.samples())
        assert found is not None  # these need nothing that a result does not have
        return found

    def summary(self) -> dict[str, float]:
        """Return all figures by name. `success` counts within the budget, `asr` any number of changes."""
        samples = self.samples()
        found = {name: each.at(torch.inf).value(samples) for name, each in metrics.METRICS.items() if "run" in each.of}
        return {"samples": len(self), **{name: value for name, value in found.items() if value is not None}}

    # As text

    def __repr__(self) -> str:
        """Return one line with the main figures."""
        if not len(self):
            return "<Result of 0 samples>"
        s = self.summary()
        found = (
            f"{self.asr():.1%} fooled within {self.budget} {self._word}s{self._beyond}"
            if self.budget is not None
            else f"{s['asr']:.1%} fooled, median l0 {_number(s['median_l0'])}, mean {_number(s['mean_l0'], '.4g')} "
            f"{self._word}s"
        )
        doubts = "".join(f"; {each.code}: doubtful" for each in self.findings)
        return f"<Result of {len(self)} samples: {found}, {s['queries']:.0f} queries each{doubts}>"

    def __str__(self) -> str:
        """Return a sentence, a small table, and a line for each finding."""
        lines = [self._sentence()]
        if len(self):
            cells = self._cells()
            widths = [max(len(name), len(text)) for name, text in cells.items()]
            for row in (cells, cells.values()):
                lines.append("  ".join(f"{word:>{width}}" for word, width in zip(row, widths, strict=True)))
        if stopped := int((self.outcome == Outcome.STOPPED).sum()):
            lines.append(f"{stopped} samples are not done, since the model stopped answering: they count as not fooled")
        if records := int(self.given_up.sum()):
            rows = int((self.given_up > 0).sum())
            lines.append(f"{records} points of {rows} samples are given up: fresh answers did not confirm them")
        return "\n".join(lines + [f"{each.code}: {each.title}. {each.detail}" for each in self.findings])

    def _cells(self) -> dict[str, str]:
        """Return the small table. With a budget the fewest changes are not known, so it has no median."""
        s, unit = self.summary(), " (pixels)" if self.unit == "pixel" else ""
        middle = {f"median l0{unit}": _number(s["median_l0"]), f"mean l0{unit}": _number(s["mean_l0"], ".2f")}
        return {
            "samples": str(len(self)),
            "already wrong": f"{s['already_wrong']:.1%}",
            "fooled" if self.budget is None else f"fooled within {self.budget}": f"{self.asr():.1%}",
            **(middle if self.budget is None else {}),
            "forwards": f"{s['forwards']:.1f}",
            "backwards": f"{s['backwards']:.1f}",
            "seconds": f"{s['seconds_per_sample']:.4f}",
        }

    def _sentence(self) -> str:
        """Return the main figure as a sentence.

        It names the middle sample and the weakest one, which needs the fewest changes of those that need any.
        """
        if not len(self):
            return "There are no samples."
        fooled, samples = int(self.success.sum()), "1 sample" if len(self) == 1 else f"{len(self)} samples"
        verb = "is" if fooled == 1 else "are"
        if self.budget is not None:
            text = f"{fooled} of {samples} {verb} fooled by changing at most {self._of_all(self.budget)}{self._beyond}"
        elif math.isinf(self.median_l0):
            text = f"{fooled} of {samples} {verb} fooled"
        else:
            subject = "The sample is" if len(self) == 1 else f"Half of {samples} are"
            changing = f"fooled by changing {self._of_all(self.median_l0)}"
            text = f"{subject} {changing if self.median_l0 else 'wrong without a change'}"
        changed = torch.where(self.success & (self.changes > 0), self.changes, math.inf)
        if len(self) > 1 and math.isfinite(least := float(changed.min())):
            text += f"; weakest: row {int(changed.argmin())}, {self._counted(least)}"
        return f"{text}."

    @property
    def _word(self) -> str:
        return "pixel" if self.unit == "pixel" else "feature"

    @property
    def _beyond(self) -> str:
        beyond = int((self.outcome == Outcome.BEYOND_BUDGET).sum())
        return f", {beyond} sample{'' if beyond == 1 else 's'} only beyond it" if beyond else ""

    def _counted(self, number: float) -> str:
        word = "pixel" if self.unit == "pixel" else "value"
        return f"one {word}" if number == 1 else f"{number:g} {word}s"

    def _of_all(self, number: float) -> str:
        """Return a number of changes and the number of sites, unless the sites are groups with names."""
        shape = self.x_adv.shape[2:] if self.unit == "pixel" else self.x_adv.shape[1:]
        few = self._counted(number)
        return few if self.names is not None else f"{number:g} of {self._counted(shape.numel())}"

    def class_name(self, number: int) -> str:
        """Return the name of a class, or its number where it has none."""
        return class_name(self.classes, number)

    # Files, tables and figures

    def save(self, path: str | Path) -> Path:
        """Write everything to an `.npz` file; `sz.load_result` reads it."""
        from sigmazero.store.results import save_result

        place = Path(path) if Path(path).suffix else Path(path).with_suffix(".npz")
        save_result(place, self)
        return place

    @staticmethod
    def load(path: str | Path) -> "Result":
        """Read a result that `save` or a command with `--out` wrote; the same function as `sz.load_result`."""
        from sigmazero.store.results import load_result

        return load_result(path)

    def to_pandas(self, table: Any = None) -> Any:
        """Return a data frame with a line per sample, by its id.

        table  the `Table` that the samples are rows of; then a line per changed field: row, field, before, after, cost
        """
        from sigmazero.report.notebook import frame

        if table is None:
            return frame(self)
        if self.x is None:
            raise ValueError("this result does not know the clean inputs; give them to table.changes(x, x_adv, ids)")
        return table.changes(self.x.cpu(), self.x_adv.cpu(), self.ids)

    def plot(self, ax: Any = None, *, label: str | None = None) -> Any:
        """Call `plot_curve`."""
        return self.plot_curve(ax, label=label)

    def plot_curve(self, ax: Any = None, *, label: str | None = None) -> Any:
        """Draw the share of samples fooled with at most k changes, with its 95 % band; return matplotlib's axes."""
        from sigmazero.report.notebook import plot_curve

        return plot_curve(self, ax, label)

    def plot_examples(self, x: Tensor | None = None, *, count: int = 6) -> Any:
        """Draw images before, after and what changed, from the easiest to the hardest; return rows of axes.

        x  the clean inputs, if the result does not know them
        """
        from sigmazero.report.notebook import plot_examples

        return plot_examples(self, x, count)

    def plot_changes(self, x: Tensor | None = None, ax: Any = None, *, count: int = 15) -> Any:
        """Draw how often each pixel changed, or which `count` features changed most often; return the axes."""
        from sigmazero.report.notebook import plot_changes

        return plot_changes(self, x, ax, count)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the figures, the curve and a few examples."""
        from sigmazero.report.notebook import as_html

        return as_html(self)

    def _each(self, change: Callable[[str, Tensor], Tensor]) -> dict[str, Any]:
        """Return every tensor by its name, changed."""
        return {f.name: change(f.name, v) for f in fields(self) if isinstance(v := getattr(self, f.name), Tensor)}

    def to(self, device: "torch.device | str") -> "Result":
        """Return the same report with its tensors on a device."""
        moved = self._each(lambda _, value: value.to(device))
        return replace(self, **moved, own=None if self.own is None else self.own.to(device))

    def take(self, rows: Tensor) -> "Result":
        """Return the same report about some of the samples, with their share of the seconds."""
        picked = self._each(lambda _, value: value[rows])
        picked["seconds"] = self.seconds * len(picked["success"]) / max(len(self), 1)
        return replace(self, **picked, own=None if self.own is None else self.own.take(rows))

    @staticmethod
    def join(parts: Sequence["Result"]) -> "Result":
        """Join the results of consecutive batches."""
        joined = parts[0]._each(lambda name, _: torch.cat([getattr(part, name) for part in parts]))
        own = [part.own for part in parts if part.own is not None]
        joined |= {"seconds": sum(part.seconds for part in parts), "own": Result.join(own) if own else None}
        return replace(parts[0], **joined)


def _array(values: Tensor) -> Any:
    return values.detach().cpu().numpy()


def _number(value: float, form: str = "g") -> str:
    """Format a number, with ∞ for infinity."""
    return "∞" if math.isinf(value) else format(value, form)
