"""Compare two stores sample by sample: what a change of the model, the attack or its settings did."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sigmazero.core import metrics
from sigmazero.core.metrics import Floats
from sigmazero.report.formats import csv_text, escape_markdown, markdown, number
from sigmazero.report.intervals import Interval, median_interval, paired_difference
from sigmazero.report.pages.curve import INK, Series, chart, colour
from sigmazero.report.pages.render import lined_up, render
from sigmazero.report.runs import COST, Group, Run, groups, table_ks
from sigmazero.store.facts import Integers

MAX_CHANGES = 20  # changed rows of a run that people see; a CSV file has all

TextRow = dict[str, str]


@dataclass(frozen=True, eq=False)
class Pair:
    """One run of each store that answer the same question, compared on the rows that both have."""

    title: str
    before: Run
    after: Run

    @property
    def both(self) -> tuple[Run, Run]:
        """Return the two runs."""
        return self.before, self.after

    @cached_property
    def rows(self) -> Integers:
        """Return the rows that both runs have."""
        return np.intersect1d(self.before.facts.row, self.after.facts.row)

    @cached_property
    def changes(self) -> tuple[Floats, ...]:
        """Return the changes of each row, before and after; infinite where it was not fooled."""
        return tuple(run.changes[run.places(self.rows)] for run in self.both)

    @cached_property
    def differences(self) -> Floats:
        """Return the changes after less those before; 0 where neither run fooled the row."""
        before, after = self.changes
        never = np.isinf(before) & np.isinf(after)
        return np.where(never, 0.0, after) - np.where(never, 0.0, before)


@dataclass(frozen=True)
class Comparison:
    """The pairs of two stores, and the runs that have no partner; `names` are what to call the stores."""

    names: tuple[str, str]
    pairs: list[Pair]
    alone: list[str]
    ks: list[float]

    def lines(self) -> list[TextRow]:
        """Return a line per run and figure: before, after, the difference and its 95 % interval."""
        return [
            {"run": "" if at else label(pair), **line}
            for pair in self.pairs
            for at, line in enumerate(_figures(pair, self.ks))
        ]

    def counts(self, pair: Pair) -> str:
        """Return how many samples need fewer, more and as many changes."""
        fewer, more = int((pair.differences < 0).sum()), int((pair.differences > 0).sum())
        same = len(pair.rows) - fewer - more
        return f"{len(pair.rows)} samples: {fewer} need fewer changes than before, {more} more, {same} as many"

    def to_markdown(self) -> str:
        """Return the figures, and the rows that changed most."""
        before, after = map(escape_markdown, self.names)
        parts = [f"{before} before, {after} after.", markdown(self.lines())]
        for pair in self.pairs:
            parts.append(f"{escape_markdown(label(pair))}, {self.counts(pair)}.")
            if rows := changed_rows(pair)[:MAX_CHANGES]:
                parts.append(markdown(rows))
        return "\n\n".join([*parts, *map(escape_markdown, self.alone)]) + "\n"

    def to_csv(self) -> str:
        """Return every row of every pair, with the changes before and after."""
        lines = []
        for pair in self.pairs:
            run = {"group": pair.title, "attack": pair.before.name, "budget": str(pair.before.budget or "")}
            for row, *values in zip(pair.rows, *pair.changes, pair.differences, strict=True):
                numbers = zip(("before", "after", "difference"), values, strict=True)
                lines.append({**run, "row": str(row), **{name: repr(float(value)) for name, value in numbers}})
        return csv_text(lines)

    def to_page(self) -> str:
        """Return a page with the figures, the curves of each pair and the rows that changed."""
        lines = [{"run": label(pair), **line} for pair in self.pairs for line in _figures(pair, self.ks)]
        caption = "Rows that need other changes than before, the largest difference first"
        parts: list[dict[str, Any]] = [
            {
                "name": label(pair),
                "counts": self.counts(pair),
                "chart": _chart(pair, f"curve-{at}", self.names),
                "table": lined_up(f"changed-{at}", caption, changed_rows(pair), ()),
            }
            for at, pair in enumerate(self.pairs)
        ]
        return render(
            "comparison.html",
            title=f"{self.names[0]} and {self.names[1]}",
            names=self.names,
            figures=lined_up(
                "figures", "Figures before and after, on the samples that both have", lines, ["run", "figure"]
            ),
            pairs=parts,
            alone=self.alone,
            data={"charts": {part["chart"]["name"]: part["chart"]["data"] for part in parts}},
        )


def compare(
    before: Sequence[Run], after: Sequence[Run], names: tuple[str, str], ks: Sequence[float] | None = None
) -> Comparison:
    """Pair the runs of two stores by model, data, goal, attack and budget.

    Where each store has one group, the two are paired whatever the model is called.
    """
    first, second = groups(before), groups(after)
    one = len(first) == len(second) == 1
    partners = {first[0].title: second[0]} if one else {group.title: group for group in second}
    pairs = [pair for group in first if group.title in partners for pair in _pairs(group, partners[group.title])]
    paired = {id(run) for pair in pairs for run in pair.both}
    alone = [
        f"Only in {name}: {run.name}{_within(run)} against {group.title}."
        for name, found in zip(names, (first, second), strict=True)
        for group in found
        for run in group.runs
        if id(run) not in paired
    ]
    if not pairs:
        raise ValueError(f"{names[0]} and {names[1]} have no run in common: the same model, data, attack and budget")
    return Comparison(names, pairs, alone, list(ks) if ks else table_ks([run for pair in pairs for run in pair.both]))


def _pairs(first: Group, second: Group) -> list[Pair]:
    if first.unit != second.unit:
        raise ValueError(f"{first.title} counts {first.unit}s in one store and {second.unit}s in the other")
    others = {(run.name, run.budget): run for run in second.runs}
    same = [run for run in first.runs if (run.name, run.budget) in others]
    found = [Pair(first.title, run, others[run.name, run.budget]) for run in same]
    for pair in found:
        if not len(pair.rows):
            raise ValueError(f"{label(pair)}: the two stores have no row in common")
        labels = [run.facts.label[run.places(pair.rows)] for run in pair.both]
        if (wrong := pair.rows[labels[0] != labels[1]]).size:
            differ = f"row {wrong[0]} has another class in each store"
            raise ValueError(f"{label(pair)}: {differ}, so their data are not the same")
    return found


def changed_rows(pair: Pair) -> list[TextRow]:
    """Return the rows that changed as texts, the largest difference first."""
    before, after = pair.changes
    order = np.lexsort((pair.rows, -abs(pair.differences)))
    return [
        {
            "row": str(pair.rows[at]),
            "before": number(before[at]),
            "after": number(after[at]),
            "difference": _signed(after[at] - before[at]),
        }
        for at in order[: np.count_nonzero(pair.differences)]
    ]


def label(pair: Pair) -> str:
    """Return what to call a pair: the attack, and what it was run against."""
    return f"{pair.before.name}{_within(pair.before)} against {pair.title}"


def _within(run: Run) -> str:
    return "" if run.budget is None else f" within {run.budget}"


def _figures(pair: Pair, ks: Sequence[float]) -> Iterator[TextRow]:
    budget, asr = pair.before.budget, "ASR at cost" if pair.before.unit == COST else "ASR"
    right = [(run.facts.clean_prediction == run.facts.label)[run.places(pair.rows)] for run in pair.both]
    yield _shares("clean accuracy", *right)
    for k in ks if budget is None else [float(budget)]:
        yield _shares(f"{asr} {k:g}", *((each <= k) & np.isfinite(each) for each in pair.changes))
    if budget is None:
        before, after = (number(metrics.median(each), 1) for each in pair.changes)
        # Not the difference of the medians: the pairs say more.
        name = "median (difference: median over the samples)"
        yield _line(name, before, after, _median(pair.differences), median_interval(pair.differences))


def _shares(figure: str, before: Any, after: Any) -> TextRow:
    first, second = (100 * float(np.mean(each)) for each in (before, after))
    low, high = paired_difference(before, after)
    return _line(f"{figure}, %", f"{first:.1f}", f"{second:.1f}", second - first, (100 * low, 100 * high))


def _line(figure: str, before: str, after: str, difference: float, ends: Interval) -> TextRow:
    line = {"figure": figure, "before": before, "after": after, "difference": _signed(difference)}
    return line | {"95 %": f"{_signed(ends[0])} to {_signed(ends[1])}"}


def _median(values: Floats) -> float:
    """Return the median of differences, which may be infinite; NaN between two opposite infinities."""
    ordered, n = np.sort(values).tolist(), len(values)
    low, high = ordered[(n - 1) // 2], ordered[n // 2]
    return float(low if low == high else (low + high) / 2)


def _signed(value: float) -> str:
    text = number(abs(value), 1)
    return text if text == "0" or value == 0 else f"{'−' if value < 0 else '+'}{text}"


def _chart(pair: Pair, name: str, names: tuple[str, str]) -> dict[str, Any]:
    """Return the curves before (dashed) and after."""
    series = [
        Series(names[1], colour(pair.after.info.attack), pair.changes[1], shaded=True),
        Series(names[0], INK, pair.changes[0], "5 3"),
    ]
    end = max(Group(pair.title, pair.both).end, float(pair.before.budget or 0))
    return chart(name, label(pair), series, end=end, unit=pair.before.unit)
