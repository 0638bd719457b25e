"""The figures of a run, or of the cells of a store, as rows of texts: all of `core.metrics` that are not hidden."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from torch import Tensor

from sigmazero.core import metrics
from sigmazero.core.metrics import Metric
from sigmazero.core.result import Result
from sigmazero.report.measure import Record
from sigmazero.report.tables.text import number, percent

SETTINGS = ("data", "steps", "budget", "goal", "unit", "seed", "precision", "space", "samples")


def run_row(
    result: Result, labels: Tensor, ks: Sequence[float] | None = None, costs: Sequence[float] = ()
) -> dict[str, str]:
    """What one reports of a run, ready to print; `labels` are the true classes, also after a targeted attack.

    Success rates are shares of all samples and a sample that was not fooled counts as infinity. With a budget only the
    rate there is known: a sample ends with the first point within it, and none is looked for beyond. `costs` are the
    costs to give rates at, where changes have some; `ks` are by default what fits the inputs.
    """
    samples, budget = result.samples(labels), result.budget
    if ks is None:
        shape = result.x_adv.shape[1:]
        ks = metrics.fitting_ks(shape, shape[1:].numel() if result.unit == "pixel" and len(shape) > 1 else None)
    row = {"samples": f"{len(result)}"}
    for each in metrics.asked("run", [*sorted(ks), math.inf] if budget is None else [budget]):
        value = each.value(samples)
        if each.known(budget) and (not each.hidden or (each.seldom and value is not None)):
            counted = each.kind == "l0" or (each.k is not None and budget is not None)
            unit = " (pixels)" if counted and result.unit == "pixel" else ""
            row[each.title + unit] = text(each, value)
    if budget is None:
        row |= {f"ASR at cost {number(cost)}": percent(result.asr_at_cost(cost)) for cost in costs}
        row |= {"median cost": number(metrics.median(result.cost.double().cpu().numpy()))} if len(costs) else {}
    return row


def store_rows(records: Sequence[Record]) -> tuple[str, list[dict[str, str]]]:
    """The records of `measure.table`, ready to print, and a line with the settings that are the same in all of them."""
    known = {name for record in records for name, value in record.items() if value is not None}
    rows = [_settings(record) | _figures(record, known) for record in records]
    same = [name for name in SETTINGS if len({row[name] for row in rows}) == 1]
    caption = ", ".join(f"{name} {rows[0][name]}" for name in same if rows[0][name] != "–")
    return caption, [{name: text for name, text in row.items() if name not in same} for row in rows]


def _settings(record: Record) -> dict[str, str]:
    samples, missing, budget = (_number(record[name]) for name in ("samples", "missing", "budget"))
    return {
        "model": str(record["model"]),
        "data": str(record["dataset"]),
        "attack": str(record["attack"]),
        "steps": str(record["steps"]),
        "budget": number(budget),
        **{name: str(record[name]) for name in ("goal", "unit", "seed", "precision", "space")},
        "samples": number(samples) + (f" of {number(samples + missing)}" if samples and missing else ""),
    }


def _figures(record: Record, known: Collection[str]) -> dict[str, str]:
    ks = [float(name[4:]) for name in record if name.startswith("asr_") and not name.endswith(("_low", "_high"))]
    shown = [each for each in metrics.asked("store", ks) if not each.hidden or (each.seldom and each.name in known)]
    return {each.heading: text(each, _number(record[each.name])) for each in shown}


def _number(value: str | float | None) -> float | None:
    assert not isinstance(value, str)
    return value


def text(metric: Metric, value: float | None) -> str:
    """A figure as tables for people show it; a dash where it is not known."""
    return percent(value) if metric.kind == "share" else number(value, metric.decimals)
