"""The top of a page: what the store holds, the one figure per model that matters most, and what is amiss."""

from __future__ import annotations

from collections.abc import Sequence

from sigmazero.core import metrics
from sigmazero.report import measure
from sigmazero.report.figures import curves
from sigmazero.report.html import about
from sigmazero.report.html.shell import Html, element
from sigmazero.report.measure import Measured
from sigmazero.report.proved import proved_ks
from sigmazero.report.tables.text import interval, number, percent
from sigmazero.store.store import CellStatus


def render(cells: Sequence[Measured], states: Sequence[CellStatus], findings: about.Findings) -> list[Html]:
    """Counts, one tile per model, then what failed and what the doctor found."""
    infos = [info for info, _ in cells]
    attacks, models, data = ({getattr(info, name) for info in infos} for name in ("attack", "model", "dataset"))
    held = [count(len(models), "model"), count(len(attacks), "attack"), count(len(data), "data set")]
    total = f"{sum(len(facts) for _, facts in cells):,} attacked samples"
    groups = curves.panels(cells, mix=True)
    tiles = [tile(group, title) for group, title in zip(groups, curves.panel_titles(groups), strict=True)]
    found = {
        (info.model, info.dataset, each["detail"], each["code"], each["severity"])
        for info in infos
        for each in findings.get(info.key, ())
    }
    notes = [about.incomplete(states)]
    for severity, means in (("error", ": figures may mean nothing"), ("warning", "")):
        if some := sorted({code for *_, code, grave in found if grave == severity}):
            many = sum(grave == severity for *_, grave in found)
            what = f"The doctor has {count(many, severity)} about the models ({', '.join(some)}){means}"
            notes.append(element("p", element("a", what, href="#provenance"), ".", class_=f"finding {severity}"))
    return [element("p", f"{', '.join(held)}, {total}."), *notes, element("dl", *tiles, class_="facts")]


def count(many: int, what: str) -> str:
    """A number of things.

    >>> count(1, "model"), count(2, "model")
    ('1 model', '2 models')
    """
    return f"{many} {what}{'' if many == 1 else 's'}"


def tile(group: Sequence[Measured], title: str) -> Html:
    """A model: the changes that fool half of its samples; where all runs have budgets, who falls to the smallest."""
    info, facts = group[0]
    free = [cell for cell in group if cell[0].budget is None]
    big, meaning = _median(free) if free else _rate(group)
    clean = percent(metrics.clean_accuracy(measure.samples(info, facts)))
    about_clean = element("small", f"Clean accuracy {clean} of {count(len(facts), 'sample')}.")
    between = element("small", said) if (said := _between(group)) else ""
    return element("div", element("dt", title), element("dd", big, element("small", meaning), about_clean, between))


def _between(group: Sequence[Measured]) -> str:
    """What is known of the truth where something is proved: the share that stays right, from below and from above."""
    found, ks = curves.truth_between(group), proved_ks(group)
    if found is None or not ks:
        return ""
    shares = [f"at k = {k:g} {interval(metrics.robust(found[1], k), metrics.robust(found[0], k))}" for k in ks]
    return f"Robust {', '.join(shares)}; the lower ends are proved."


def _median(free: Sequence[Measured]) -> tuple[str, str]:
    unit = free[0][0].unit
    medians: dict[str, float] = {}
    for info, facts in free:
        value = metrics.median(measure.changes(facts, info.unit))
        medians[info.attack] = min(value, medians.get(info.attack, value))
    least = min(medians.values())
    strongest = " and ".join(name for name, value in medians.items() if value == least)
    pooled = curves.best_of_all(free)
    if pooled is None:
        return number(least, 1), f"changed {unit}s or fewer fool half of the samples, by {strongest}."
    best = number(metrics.median(pooled[1]), 1)
    alone = f"Best alone: {strongest}, with {number(least, 1)}."
    return best, f"changed {unit}s or fewer fool half of the samples, by the best of {len(free)} runs. {alone}"


def _rate(group: Sequence[Measured]) -> tuple[str, str]:
    budget = min(info.budget or 0 for info, _ in group)
    rates = {
        info.attack: metrics.asr(measure.changes(facts, info.unit), budget)
        for info, facts in group
        if info.budget == budget
    }
    strongest = max(rates, key=lambda name: rates[name])
    unit = f"{group[0][0].unit}s"
    return percent(rates[strongest]), f"of the samples fall to {budget} changed {unit}, by {strongest}."
