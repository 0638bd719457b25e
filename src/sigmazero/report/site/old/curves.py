"""Success rate against the number of changes, a panel per model; and what other figures need to make such panels."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from sigmazero.core import metrics
from sigmazero.core.metrics import Floats
from sigmazero.report.figures import style
from sigmazero.report.intervals import wilson
from sigmazero.report.site.old import measure, window
from sigmazero.report.site.old.layout import identity
from sigmazero.report.site.old.measure import Measured
from sigmazero.report.site.old.optimality import curve, envelope
from sigmazero.report.site.old.proved import both_ends
from sigmazero.store.facts import CellInfo, Facts

VARYING = ("steps", "seed", "precision", "version", "space")
BAND = (
    "Shares are of all n samples. The band is the 95 % interval (Wilson) of the strongest attack; bars are such, too."
)
PROVED = "at most, proved"
GAP = "\nHatched: what is neither fooled nor proved to stay right; the truth for these samples lies there."


def panels(cells: Sequence[Measured], mix: bool = False) -> list[list[Measured]]:
    """The cells of each model (on the same rows, with the same goal) together; mixtures are refused as in tables."""
    if not cells:
        raise ValueError("the store has no samples yet; run a plan into it first")
    if not mix:
        measure.refuse_mixture([info for info, _ in cells])
    groups: dict[tuple[str, ...], list[Measured]] = {}
    for info, facts in cells:
        groups.setdefault(tuple(identity(info)), []).append((info, facts))
    return list(groups.values())


def draw_curves(cells: Sequence[Measured], *, log: bool = False, mix: bool = False, until: int | None = None) -> Any:
    """Per model, ASR over k for each attack, the 95 % band of the strongest, and the best of all attacks per sample.

    A run with a budget tells the rate at its budget alone, so it is a point with a bar. The axis ends at `until`, or
    where most attacks are seen well; what is cut off is marked and said. A logarithmic axis has room for all.
    """
    if until is not None and until < 1:
        raise ValueError(f"until={until}: give 1 or more changes")
    groups = panels(cells, mix)
    figure, axes = style.grid(len(groups))
    for axis, group, title in zip(axes, groups, panel_titles(groups), strict=True):
        found, least = _panel(group)
        end = float(until) if until else window.last([*found.values()], least)
        if not log and not until:
            end = window.sensible_end([*found.values()], least)
        _draw(axis, group, found, end)
        if log:
            # Inputs that are wrong already have 0 changes, so 0 needs a place on the axis.
            axis.set_xscale("symlog", linthresh=1, linscale=0.3)
            axis.xaxis.set_major_formatter("{x:g}")
        elif group[0][0].unit != measure.COST:
            axis.xaxis.get_major_locator().set_params(integer=True)
        beyond = style.plain(window.said(window.cut(found, end), end, measure.word(group[0][0].unit)))
        axis.set(xlim=(0, end), ylim=(0, 101), ylabel="attack success rate, %")
        axis.set_title(style.plain(f"{title}, {counted(group)}"), fontsize=11)
        axis.set_xlabel("\n".join([measure.axis(group[0][0].unit), *textwrap.wrap(beyond, 70)]))
        style.legend(axis)
        style.tidy(axis)
    gaps = any(truth_between(group) is not None for group in groups)
    figure.supxlabel(BAND + (GAP if gaps else ""), fontsize=7, color="#555555")
    return figure


def _panel(group: Sequence[Measured]) -> tuple[dict[str, Floats], float]:
    """The changes of the runs without a budget, by their names and from the strongest on, and the largest budget."""
    free = [(info, facts) for info, facts in group if info.budget is None]
    called = names([info for info, _ in group])
    found = {called[info.key]: measure.changes(facts, info.unit) for info, facts in free}
    least = max([1.0, *(float(info.budget) for info, _ in group if info.budget is not None)])
    end = window.sensible_end([*found.values()], least)
    return dict(sorted(found.items(), key=lambda one: window.weakness(one[1], end))), least


def counted(group: Sequence[Measured]) -> str:
    """How many samples the runs of a panel have.

    >>> counted([])
    'n = 0'
    """
    sizes = sorted({len(facts) for _, facts in group}) or [0]
    return f"n = {sizes[0]}" if len(sizes) == 1 else f"n = {sizes[0]} to {sizes[-1]}"


def _draw(axis: Any, group: Sequence[Measured], found: dict[str, Floats], end: float) -> None:
    called = names([info for info, _ in group])
    infos = {called[info.key]: info for info, _ in group}
    first = window.leader(found, end)
    for name, l0 in found.items():
        _line(axis, infos[name], l0, end, style.plain(name), banded=name == first)
    _points(axis, [cell for cell in group if cell[0].budget is not None], labels([info for info, _ in group]))
    _envelope(axis, [cell for cell in group if cell[0].budget is None], end)
    _gap(axis, group, end)


def labels(infos: Sequence[CellInfo]) -> dict[str, str]:
    """What a figure calls each cell of a panel."""
    return {key: style.plain(name) for key, name in names(infos).items()}


def names(infos: Sequence[CellInfo]) -> dict[str, str]:
    """What to call each cell of a panel: its attack, and what sets it apart from others of that name."""
    named = {}
    for info in infos:
        same = [other for other in infos if (other.attack, other.budget) == (info.attack, info.budget)]
        differ = [name for name in VARYING if len({getattr(other, name) for other in same}) > 1]
        named[info.key] = ", ".join([info.attack, *(f"{name} {getattr(info, name)}" for name in differ)])
    return named


def band(l0: Any) -> tuple[Any, Any, Any, Any]:
    """The k where the rate jumps, the rate from there on, and the ends of its interval by Wilson; all in percent."""
    ks, rates = curve(l0)
    ends = np.array([wilson(round(rate * len(l0)), len(l0)) for rate in rates])
    return ks, 100 * rates, 100 * ends[:, 0], 100 * ends[:, 1]


def _line(axis: Any, info: CellInfo, l0: Any, end: float, label: str, *, banded: bool) -> None:
    colour, dash = style.colour(info.attack), style.dash(info.attack)
    whole = band(l0)
    ks, rate, low, high = (each[whole[0] <= end] for each in whole)
    # The last value is repeated at the right edge: up to there the rate stays the same.
    ks, rate, low, high = np.append(ks, end), *(np.append(each, each[-1]) for each in (rate, low, high))
    if banded:
        axis.fill_between(ks, low, high, step="post", color=colour, alpha=0.2, linewidth=0)
    axis.step(
        ks, rate, where="post", color=colour, linestyle=dash, linewidth=1.6, label=label, zorder=3 if banded else 2
    )
    if window.cut({label: l0}, end):
        axis.plot([end], [rate[-1]], ">", color=colour, markersize=6, clip_on=False, zorder=4)


def _points(axis: Any, cells: Sequence[Measured], names: dict[str, str]) -> None:
    rows: dict[str, list[tuple[float, ...]]] = {}
    colours = {names[info.key]: style.colour(info.attack) for info, _ in cells}
    for info, facts in cells:
        k = float(info.budget or 0)
        l0 = measure.changes(facts, info.unit)
        rate = metrics.asr(l0, k)
        low, high = wilson(round(rate * len(l0)), len(l0))
        rows.setdefault(names[info.key], []).append((k, 100 * rate, 100 * (rate - low), 100 * (high - rate)))
    for label, points in rows.items():
        ks, rates, below, above = np.array(sorted(points)).T
        # Rounding may put the end of an interval just inside the rate, and a bar cannot be negative.
        bars = np.maximum([below, above], 0)
        axis.errorbar(ks, rates, bars, color=colours[label], fmt="o", markersize=4, capsize=2, label=f"{label} at k")


def best_of_all(free: Sequence[Measured]) -> tuple[str, Any] | None:
    """A name for the best of two or more attacks, and its l0 per sample, over the rows that all of them have."""
    if len(free) < 2:
        return None
    common = reduce(np.intersect1d, [facts.row for _, facts in free])
    if not len(common):
        return None
    pool: list[Facts] = [facts.take(np.isin(facts.row, common)) for _, facts in free]
    some = "" if all(len(facts) == len(common) for _, facts in free) else f" ({len(common)} rows all have)"
    return f"best of all{some}", envelope(pool, free[0][0].unit).l0


def _envelope(axis: Any, free: Sequence[Measured], end: float) -> None:
    found = best_of_all(free)
    if found is None:
        return
    label, l0 = found
    ks, rates = curve(l0)
    ks, rates = ks[ks <= end], 100 * rates[ks <= end]
    axis.step(
        np.append(ks, end),
        np.append(rates, rates[-1]),
        where="post",
        color=style.BEST,
        linestyle=":",
        linewidth=1.4,
        label=label,
        zorder=4,
    )


def truth_between(group: Sequence[Measured]) -> tuple[Floats, Floats] | None:
    """Per sample the fewest changes found by the runs of a panel and those proved to be needed, if any are proved."""
    free = [cell for cell in group if cell[0].budget is None] or list(group)
    return both_ends(free, [measure.changes(facts, info.unit) for info, facts in free])


def _gap(axis: Any, group: Sequence[Measured], end: float) -> None:
    """The shares between what attacks fool and what may fall at most, by what is proved."""
    found = truth_between(group)
    if found is None:
        return
    ks = np.unique(np.concatenate([[0.0, end], *(each[each <= end] for each in found)]))
    below, above = (100 * np.array([metrics.asr(each, k) for k in ks]) for each in found)
    axis.fill_between(ks, below, above, step="post", facecolor="none", edgecolor=style.GAP, hatch="////", linewidth=0)
    axis.step(ks, above, where="post", color=style.GAP, linestyle="-.", linewidth=1.2, label=PROVED, zorder=1)


def panel_titles(groups: Sequence[Sequence[Measured]]) -> list[str]:
    """The titles of panels; where two would be the same, what may change tells them apart."""
    plain = [panel_title(group[0][0]) for group in groups]
    return [
        f"{title}, space {group[0][0].space}" if plain.count(title) > 1 else title
        for title, group in zip(plain, groups, strict=True)
    ]


def panel_title(info: CellInfo) -> str:
    """The model and the data of a panel, and the goal unless it is the usual one."""
    return f"{info.model} on {info.dataset}" + ("" if info.goal == "untargeted" else f", {info.goal}")
