"""Say in one sentence what the best attack on a model did."""

import math
from collections.abc import Sequence

import numpy as np

from sigmazero.core import metrics
from sigmazero.report.formats import number, percent
from sigmazero.report.runs import Group, Run, groups


def sentences(runs: Sequence[Run], mix: bool = False) -> list[str]:
    """Return a sentence for each model and question; its title comes first where there are several."""
    found = groups(runs, mix) if runs else []
    return [f"{group.title}: {sentence(group)}" if len(found) > 1 else sentence(group) for group in found]


def sentence(group: Group) -> str:
    """Say how many changes fool half of the samples, by which attack, and which row is weakest.

    Where all runs have a budget, say how many samples are fooled within the smallest one.
    """
    info, best, shape = group.info, group.strongest, list(group.info.about.get("shape", ()))
    samples = f"{len(best)} {'images' if len(shape) == 3 else 'samples'}"
    noun = "pixel" if info.unit == "pixel" else "value"
    of = f" of {math.prod(shape[1:] if info.unit == 'pixel' else shape)}" if shape and info.space in ("", "–") else ""
    if best.budget is not None:
        least = min(run.budget for run in group.fixed if run.budget is not None)
        tried = [run for run in group.fixed if run.budget == least]
        best = max(tried, key=lambda run: metrics.asr(run.changes, least))
        rate = percent(metrics.asr(best.changes, least))
        return f"Changing at most {_counted(least, noun, of)} fools {rate} of {samples} ({best.name})."
    median = metrics.median(best.changes)
    if math.isinf(median):
        said = f"Fewer than half of {samples} are fooled: {percent(metrics.asr(best.changes))} ({best.name})"
    elif median == 0:
        said = f"Half of {samples} are wrong without a change"
    else:
        said = f"Half of {samples} are fooled by changing {_counted(median, noun, of)} ({best.name})"
    needed = np.where(best.changes > 0, best.changes, np.inf)
    if not np.isfinite(needed).any():
        return said + "."
    weakest = int(needed.argmin())
    return f"{said}; weakest: row {best.facts.row[weakest]}, {_counted(needed[weakest], noun)}."


def _counted(many: float, noun: str, of: str = "") -> str:
    return f"one{of} {noun}{'s' if of else ''}" if many == 1 else f"{number(many, 1)}{of} {noun}s"
