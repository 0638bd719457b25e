"""Compare two stores sample by sample: what a change of the model, the attack or its settings did."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sigmazero.core import metrics
from sigmazero.core.messages import harmless
from sigmazero.core.metrics import Floats
from sigmazero.report.formats import escape_markdown, markdown, number
from sigmazero.report.intervals import Interval, median_interval, paired_difference
from sigmazero.report.pages.curve import INK, Series, chart, colour
from sigmazero.report.pages.render import PageTable, lined_up, render
from sigmazero.report.runs import COST, Group, Run, groups, table_ks

MAX_CHANGES = 20  # changed rows of a run that people see; a CSV file has all


@dataclass(frozen=True, eq=False)
class Pair:
    """One run of each store that answer the same question, on the rows that both have."""

    title: str
    before: Run
    after: Run

    @cached_property
    def rows(self) -> Any:
        """Return the rows that both runs have."""
        return np.intersect1d(self.before.facts.row, self.after.facts.row)

    @cached_property
    def changes(self) -> tuple[Floats, Floats]:
        """Return the changes of each row, before and after; infinite where it was not fooled."""
        first, second = (run.changes[run.places(self.rows)] for run in (self.before, self.after))
        return first, second

    @cached_property
    def differences(self) -> Floats:
        """Return the changes after less those before; 0 where neither run fooled the row."""
        before, after = self.changes
        never = np.isinf(before) & np.isinf(after)
        return np.where(never, 0.0, after) - np.where(never, 0.0, before)

    def changed(self) -> list[tuple[int, float, float]]:
        """Return each row that needs other changes than before, the largest difference first."""
        order = sorted(np.flatnonzero(self.differences), key=lambda at: (-abs(self.differences[at]), self.rows[at]))
        before, after = self.changes
        return [(int(self.rows[at]), float(before[at]), float(after[at])) for at in order]


@dataclass(frozen=True)
class Comparison:
    """The pairs of two stores, and the runs that have no partner; `names` are what to call the stores."""

    names: tuple[str, str]
    pairs: list[Pair]
    alone: list[str]
    ks: list[float]

    def lines(self) -> list[dict[str, str]]:
        """Return a line per run and figure: before, after, the difference and its 95 % interval."""
        return [
            {"run": label(pair) if at == 0 else "", **line}
            for pair in self.pairs
            for at, line in enumerate(self._figures(pair))
        ]

    def _figures(self, pair: Pair) -> Iterator[dict[str, str]]:
        right = [run.facts.clean_prediction == run.facts.label for run in (pair.before, pair.after)]
        clean = [each[run.places(pair.rows)] for each, run in zip(right, (pair.before, pair.after), strict=True)]
        yield _shares("clean accuracy", *clean)
        for k in self.ks if pair.before.budget is None else [float(pair.before.budget)]:
            fooled = [(each <= k) & np.isfinite(each) for each in pair.changes]
            yield _shares(f"{'ASR at cost' if pair.before.unit == COST else 'ASR'} {k:g}", *fooled)
        if pair.before.budget is None:
            before, after = (number(metrics.median(each), 1) for each in pair.changes)
            between = median_interval(pair.differences)
            # Not the difference of the medians: the pairs say more.
            name = "median (difference: median over the samples)"
            yield _line(name, before, after, _median(pair.differences), between)

    def counts(self, pair: Pair) -> str:
        """Return how many samples need fewer, more and as many changes."""
        fewer, more = int((pair.differences < 0).sum()), int((pair.differences > 0).sum())
        same = len(pair.rows) - fewer - more
        return f"{len(pair.rows)} samples: {fewer} need fewer changes than before, {more} more, {same} as many"

    def to_markdown(self) -> str:
        """Return the figures, and the rows that changed most."""
        parts = [
            f"{escape_markdown(self.names[0])} before, {escape_markdown(self.names[1])} after.",
            markdown(self.lines()),
        ]
        for pair in self.pairs:
            parts.append(f"{escape_markdown(label(pair))}, {self.counts(pair)}.")
            if rows := changed_rows(pair)[:MAX_CHANGES]:
                parts.append(markdown(rows))
        return "\n\n".join([*parts, *map(escape_markdown, self.alone)]) + "\n"

    def to_csv(self) -> str:
        """Return every row of every pair, with the changes before and after."""
        file = io.StringIO()
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["group", "attack", "budget", "row", "before", "after", "difference"])
        for pair in self.pairs:
            start = [harmless(pair.title), harmless(pair.before.name), pair.before.budget or ""]
            for row, before, after, difference in zip(pair.rows, *pair.changes, pair.differences, strict=True):
                out.writerow([*start, int(row), *(repr(float(each)) for each in (before, after, difference))])
        return file.getvalue()

    def to_page(self) -> str:
        """Return a page with the figures, the curves of each pair and the rows that changed."""
        lines = [{"run": label(pair), **line} for pair in self.pairs for line in self._figures(pair)]
        caption = "Figures before and after, on the samples that both have"
        charts = [_chart(pair, at, self.names) for at, pair in enumerate(self.pairs)]
        tables = [_rows_table(pair, at) for at, pair in enumerate(self.pairs)]
        return render(
            "comparison.html",
            title=f"{self.names[0]} and {self.names[1]}",
            names=self.names,
            figures=lined_up("figures", caption, lines, ["run", "figure"]),
            pairs=[
                {"name": label(pair), "counts": self.counts(pair), "chart": one, "table": table}
                for pair, one, table in zip(self.pairs, charts, tables, strict=True)
            ],
            alone=self.alone,
            data={"charts": {one["name"]: one["data"] for one in charts}},
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
    pairs: list[Pair] = []
    for group in first:
        other = partners.get(group.title)
        if other is not None:
            pairs += _pairs(group, other)
    paired = {id(run) for pair in pairs for run in (pair.before, pair.after)}
    alone = [
        f"Only in {name}: {run.name}{_within(run)} against {group.title}."
        for name, found in zip(names, (first, second), strict=True)
        for group in found
        for run in group.runs
        if id(run) not in paired
    ]
    if not pairs:
        raise ValueError(f"{names[0]} and {names[1]} have no run in common: the same model, data, attack and budget")
    every = [run for pair in pairs for run in (pair.before, pair.after)]
    return Comparison(names, pairs, alone, list(ks) if ks else table_ks(every))


def _pairs(first: Group, second: Group) -> list[Pair]:
    if first.unit != second.unit:
        raise ValueError(f"{first.title} counts {first.unit}s in one store and {second.unit}s in the other")
    others = {(run.name, run.budget): run for run in second.runs}
    found = [
        Pair(first.title, run, others[run.name, run.budget]) for run in first.runs if (run.name, run.budget) in others
    ]
    for pair in found:
        labels = [run.facts.label[run.places(pair.rows)] for run in (pair.before, pair.after)]
        if not len(pair.rows):
            raise ValueError(f"{label(pair)}: the two stores have no row in common")
        if (wrong := np.flatnonzero(labels[0] != labels[1])).size:
            row = int(pair.rows[wrong[0]])
            raise ValueError(
                f"{label(pair)}: row {row} has another class in each store, so their data are not the same"
            )
    return found


def changed_rows(pair: Pair) -> list[dict[str, str]]:
    """Return the rows that changed as texts, the largest difference first."""
    return [
        {"row": str(row), "before": number(before), "after": number(after), "difference": _signed(after - before)}
        for row, before, after in pair.changed()
    ]


def label(pair: Pair) -> str:
    """Return what to call a pair: the attack, and what it was run against."""
    return f"{pair.before.name}{_within(pair.before)} against {pair.title}"


def _within(run: Run) -> str:
    return "" if run.budget is None else f" within {run.budget}"


def _shares(figure: str, before: Any, after: Any) -> dict[str, str]:
    first, second = (100 * float(np.mean(each)) for each in (before, after))
    low, high = paired_difference(before, after)
    return _line(f"{figure}, %", f"{first:.1f}", f"{second:.1f}", second - first, (100 * low, 100 * high))


def _line(figure: str, before: str, after: str, difference: float, ends: Interval) -> dict[str, str]:
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


def _chart(pair: Pair, place: int, names: tuple[str, str]) -> dict[str, Any]:
    """Return the curves before (dashed) and after."""
    group = Group(pair.title, (pair.before, pair.after))
    series = [
        Series(names[1], colour(pair.after.info.attack), pair.changes[1], shaded=True),
        Series(names[0], INK, pair.changes[0], "5 3"),
    ]
    end = max(group.end, float(pair.before.budget or 0))
    return chart(f"curve-{place}", label(pair), series, end=end, unit=pair.before.unit)


def _rows_table(pair: Pair, place: int) -> PageTable:
    caption = "Rows that need other changes than before, the largest difference first"
    return lined_up(f"changed-{place}", caption, changed_rows(pair), ())
